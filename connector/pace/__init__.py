"""How fast, how many at once, and when not at all: found from what the service does; pure, on a clock passed in."""
