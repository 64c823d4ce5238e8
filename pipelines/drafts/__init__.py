"""What `connector init` guesses of a source, and the job that it drafts."""
