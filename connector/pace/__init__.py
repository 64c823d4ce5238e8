"""Controllers of the pace of requests: rate, concurrency and pauses. The controllers learn from the service's answers.
All code is pure: the time is an argument."""
