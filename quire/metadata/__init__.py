"""Shared metadata: registered bookies, existing ledgers, ownership."""
