"""Recovery of a ledger that was left open: the rules, and what obeys them."""
