"""Reports: as values, as text for a terminal, as a page, and the files of a run for its users."""
