"""Reasons for which a dispatcher ends a pass: each return of `Subscription._pump` names one.

A reason says what the dispatcher found, not what holds now: `broker.explain` compares it with the state of this
moment. If nothing stands in the way any more and the dispatcher was not called again, it is stuck.
"""

from __future__ import annotations

from enum import Enum


class PumpStop(Enum):
    """Why the last pass ended. The value completes "the dispatcher stopped because ..."."""

    NOT_STARTED = "it was not needed yet"
    NO_CONSUMER = "there was no active consumer"
    NO_TAKER = "no consumer had permits and room"
    UNACKED = "the subscription had too many unacknowledged messages"
    RATE = "a rate of delivery was used up"
    UNSETTLED = "entries of consumers that left were being put back"
    PUT_OFF = "the pass had done its share of work"
    READING = "a read was under way"
    FAILOVER_DELAY = "the new active consumer has to wait a moment"
    FILTER = "an entry filter has rescheduled the next entry"
    WAITING_FULL = "too many entries that were read wait for their consumers"
    TRANSACTION = "what follows is held back until a transaction ends"
    ACK_STATE = "it had more ranges of acknowledged entries than are to be stored"
    CAUGHT_UP = "everything confirmed was read"
