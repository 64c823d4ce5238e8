"""Sources: from files and databases to chunks of text. Nothing here knows what a subscriber is."""
