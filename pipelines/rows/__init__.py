"""Rows on their way: made ready to be loaded, and told of to people one by one."""
