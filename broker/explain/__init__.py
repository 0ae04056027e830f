"""Explanations: why nothing is delivered, why producers wait, why ledgers are kept, each with the remedy."""
