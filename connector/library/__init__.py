"""The public interface of connector for scripts, notebooks and threads. Its functions and methods read the list, load
and plan rows, and send emails."""
