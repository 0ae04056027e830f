"""Bounds of the time in which a message comes, from the settings of the servers and of the simulated world (pure).

No time is too long while faults are under way: partitions that follow each other keep every copy of an entry away for
as long as they last, and a call of the metadata service is as late as the seed draws. So these seconds count from the
last fault on (`Stage.calm_since`). A dispatcher that was not woken is found sooner, and without a clock: a subscription
that waits must name a true cause at any time (WaitingMessagesHaveACause).
"""

from __future__ import annotations

from broker.dispatch.subscription import READ_BACKOFF_MAX_S
from quire.ledger.client import TICKS_PER_TIMEOUT
from quire.ledger.context import LedgerConfig

METADATA_CALLS = 2
"""Calls of the metadata service in one read: the ledger is opened, and looked up again if all its bookies failed."""
HOPS_S = 0.5
"""Seconds that all messages of one read take on whole links, of which each takes 50 ms at most."""


def read_bound_s(client: LedgerConfig, *, copies: int, metadata_latency_max_s: float) -> float:
    """Return the seconds after which a read of an entry has ended, well or not.

    The bookies of the `copies` are asked one after the other, the next one when the last one takes longer than the
    speculative timeout or has failed. The last one fails at the timeout of reads, which is noticed up to a tick later.
    A call of the metadata service may be late both ways.

    >>> read_bound_s(LedgerConfig(read_timeout_s=3, add_timeout_s=3), copies=3, metadata_latency_max_s=0.5)
    9.6875
    """
    calls_s = METADATA_CALLS * 2 * metadata_latency_max_s
    timeout_s = client.read_timeout_s + client.read_timeout_s / TICKS_PER_TIMEOUT
    next_s = min(timeout_s, client.reads.speculative_max_s) if client.reads.speculative_first_s else timeout_s
    return calls_s + (copies - 1) * next_s + timeout_s + HOPS_S


def delivery_bound_s(read_s: float) -> float:
    """Return the seconds of calm after which a subscription has read an entry, if a read ends within `read_s`.

    A read of before the calm may fail, the next one is made after the longest pause between failed reads, and
    succeeds.

    >>> delivery_bound_s(3.0)
    21.0
    """
    return read_s + READ_BACKOFF_MAX_S + read_s
