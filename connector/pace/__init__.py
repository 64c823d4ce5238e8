"""Controllers of the pace: rate, concurrency and pauses. They learn from the service's answers. Pure: time is an
argument."""
