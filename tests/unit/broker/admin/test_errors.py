"""broker.admin.errors: one table from the errors of the broker to a status."""

from __future__ import annotations

import pytest

from broker.admin.errors import STATUSES, status_of
from broker.errors import (
    BrokerError,
    ConsumerAssignError,
    ConsumerNotFoundError,
    IsPartitionedError,
    NotAllowedError,
    NotPartitionedError,
    PartitionCountError,
    ProducerBlockedError,
    ProducerFencedError,
    QuotaExceededError,
    TopicNotFoundError,
    TopicTerminatedError,
)

NEVER_OF_ADMINISTRATION = {
    ConsumerAssignError,
    ConsumerNotFoundError,
    ProducerBlockedError,
    ProducerFencedError,
    QuotaExceededError,
    TopicTerminatedError,
}


def _subclasses(of: type[BrokerError]) -> set[type[BrokerError]]:
    return {each for direct in of.__subclasses__() for each in {direct, *_subclasses(direct)}}


def _subclasses_in(module: str) -> set[type[BrokerError]]:
    """Return the errors of a module whose resources give them statuses of their own."""
    return {each for each in _subclasses(BrokerError) if each.__module__ == module}


def test_every_error_of_the_broker_has_a_status_of_its_own_kind() -> None:
    without = {
        each
        for each in _subclasses(BrokerError)
        if not each.__name__.startswith("_") and status_of(each("x"), {}) == 500
    }
    elsewhere = (_subclasses_in(each) for each in ("broker.transactions.errors", "broker.console.messages.entries"))
    assert without == NEVER_OF_ADMINISTRATION.union(*elsewhere)


def test_the_nearest_class_decides() -> None:
    assert status_of(NotPartitionedError("x"), {}) == STATUSES[TopicNotFoundError] == 404
    assert status_of(IsPartitionedError("x"), {}) == STATUSES[NotAllowedError] == 405
    assert status_of(PartitionCountError("x"), {}) == 406


@pytest.mark.parametrize(("error", "status"), [(NotPartitionedError("x"), 409), (TopicNotFoundError("x"), 404)])
def test_what_a_resource_answers_otherwise_goes_first(error: BrokerError, status: int) -> None:
    assert status_of(error, {NotPartitionedError: 409}) == status


def test_what_is_in_no_table_is_our_mistake() -> None:
    assert status_of(BrokerError("x"), {}) == 500
