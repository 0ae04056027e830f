"""Small shared facts: who is there, which ledgers there are, who owns what."""
