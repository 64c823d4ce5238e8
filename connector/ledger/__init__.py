"""What is known of every identity in every base: the memory that survives the process (architecture 4)."""
