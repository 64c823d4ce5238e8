"""Shows the reports of runs as text on a terminal and as HTML pages, finds the next steps, and writes the file of the
differences."""
