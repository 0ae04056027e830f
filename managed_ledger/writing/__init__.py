"""The writing side of a log: appends, the open ledger, and the switch to the next one."""
