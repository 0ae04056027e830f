"""Recovery of a ledger that was left open: the rules (pure), and the tasks that apply them."""
