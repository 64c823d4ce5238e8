"""Controllers of the pace, learned from the service's answers: rate, concurrency and pauses. Pure: time is an
argument."""
