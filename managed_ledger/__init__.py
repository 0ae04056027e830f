"""One endless log made of ledgers."""
