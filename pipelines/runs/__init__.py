"""The frame of every run: opened, carried out, stopped, reported and shown."""
