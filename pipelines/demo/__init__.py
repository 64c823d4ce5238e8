"""A made-up service, made-up people, and everything that the connector does with them, checked at the end."""
