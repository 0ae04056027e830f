"""Several ledger directories and several journals of one bookie."""
