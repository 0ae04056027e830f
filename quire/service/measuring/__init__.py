"""What is measured while a server runs, and how a scrape of it is written."""
