"""Commands of the shell on ledgers and their entries, through the ledger client."""
