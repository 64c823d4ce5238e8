"""Reports: as values, for people at a terminal, as a page, and the files of a run that people read."""
