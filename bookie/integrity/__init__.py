"""Data integrity: what a bookie lost is copied back from the other members of its ledgers."""
