"""The latest warnings and errors of a process: kept in memory, and read at its web port."""
