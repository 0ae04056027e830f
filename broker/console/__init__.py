"""The console: pages and data for operators, at the web port."""
