"""Topics of the console: their table, as it is sorted and filtered at the server."""
