"""Options of source and sink: the table of them, and how they are read."""
