"""Exit codes of bookies and auto recovery, the original's (ExitCode); 0 is a requested stop."""

from __future__ import annotations

INVALID_CONF = 1
SERVER_EXCEPTION = 2
ZK_EXPIRED = 3
"""The ZooKeeper session expired, and the process may not register again."""
ZK_REG_FAIL = 4
BOOKIE_EXCEPTION = 5
"""A bookie could not start or continue: folders, cookies, disk."""
