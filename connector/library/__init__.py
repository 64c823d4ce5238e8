"""The public interface of connector for scripts, notebooks and threads. It reads the list, and loads, plans and
sends."""
