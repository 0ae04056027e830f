"""Lists of topics as clients ask for them, and as they watch them: by namespace, filtered by a pattern."""
