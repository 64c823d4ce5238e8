"""The public interface of connector: reads the list, loads, plans and sends, from a script, a notebook or a thread."""
