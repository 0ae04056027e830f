"""Writing of entry logs: one after another, for all ledgers or for each."""
