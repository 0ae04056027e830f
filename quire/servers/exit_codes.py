"""Exit codes of bookies and auto recovery, the original's (ExitCode); 0 is a stop as asked."""

from __future__ import annotations

INVALID_CONF = 1
SERVER_EXCEPTION = 2
ZK_EXPIRED = 3
"""ZooKeeper gave the process up, and it may not register anew."""
ZK_REG_FAIL = 4
BOOKIE_EXCEPTION = 5
"""A bookie could not start or go on: folders, cookies, disk."""
