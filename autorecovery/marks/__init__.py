"""The marks of ledgers that lack copies, as they stand in the metadata."""
