"""Meaning of a bookie's answer to an add, or of its absence: the writer ends, or that bookie has failed. Pure."""

from __future__ import annotations

from quire.ledger.errors import (
    AddQuorumTimeoutError,
    BookieProtocolError,
    BookieRefusedError,
    BookieTimeoutError,
    LedgerError,
    LedgerFencedError,
    LedgerUnauthorizedError,
    rc_name,
)
from quire.wire.bookkeeper.v2 import Rc


def refusal_of(rc: int, ledger_id: int, first: int, bookie_id: str) -> LedgerError:
    """The error that an answer other than OK and TOO_MANY_REQUESTS means. A BookieError concerns that bookie alone; any
    other ends the writer."""
    if rc == Rc.FENCED:
        return LedgerFencedError(f"ledger {ledger_id} was fenced, says bookie {bookie_id}")
    if rc == Rc.UNAUTHORIZED:
        return LedgerUnauthorizedError(f"bookie {bookie_id} knows ledger {ledger_id} by another key")
    return BookieRefusedError(f"bookie {bookie_id} answered {rc_name(rc)} to the add of {ledger_id}:{first}", rc)


def unasked(bookie_id: str, first: int, last: int) -> BookieProtocolError:
    """The bookie answered entries that it was not sent."""
    return BookieProtocolError(f"bookie {bookie_id} answered adds {first}..{last}, which were not sent")


def late_bookie(bookie_id: str, ledger_id: int) -> BookieTimeoutError:
    """The bookie did not answer within its time."""
    return BookieTimeoutError(f"bookie {bookie_id} did not acknowledge adds of ledger {ledger_id} in time")


def late_quorum(ledger_id: int, confirmed: int) -> AddQuorumTimeoutError:
    """An entry behind `confirmed` was not acknowledged by its ack quorum within its time."""
    return AddQuorumTimeoutError(
        f"an entry of ledger {ledger_id} after {confirmed} did not reach its ack quorum in time"
    )
