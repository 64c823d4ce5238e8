"""Which page of the list to ask for next, and what the answers prove together; pure, fed with ids only."""
