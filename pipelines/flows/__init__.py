"""What a command does, from its plan to its report."""
