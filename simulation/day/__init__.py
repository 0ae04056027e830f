"""History of a day: bookies whose ledgers come and go, and who compact, repair and run out of room meanwhile."""
