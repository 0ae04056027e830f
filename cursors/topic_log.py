"""Loggers of what belongs to one managed ledger. Their lines name the topic as the broker's lines do, so that both can
be joined."""

from __future__ import annotations

from typing import Any

from quire.service.log import Logger
from quire.wire.pulsar.errors import InvalidTopicNameError
from quire.wire.pulsar.names import TopicName


def topic_log(log: Logger, managed_ledger: str, **pairs: Any) -> Logger:
    """Return `log` with `topic=`, `managed_ledger=` and `pairs` bound; without `topic=` for a name that is not that of
    a topic.

    Made where a line is written, not kept: lines are rare, and a broker has tens of thousands of managed ledgers.
    """
    try:
        pairs["topic"] = TopicName.from_managed_ledger_path(managed_ledger).full
    except InvalidTopicNameError:
        pass
    return log.bind(managed_ledger=managed_ledger, **pairs)
