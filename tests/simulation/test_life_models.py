"""The models of the parts can fail (deduplicating, expiring, typed, ruling)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from simulation.common.checkers import ViolationError
from simulation.life.deduplicating import SequenceModel
from simulation.life.expiring import ExpiryModel
from simulation.life.part import SKEW_MS
from simulation.life.ruling import PolicyModel
from simulation.life.typed import SchemaModel, definition


def sequences(*, sent: int, confirmed: int) -> SequenceModel:
    model = SequenceModel()
    model.sent = sent
    model.confirmed = confirmed
    return model


def violates(name: str, work: Callable[[], object]) -> None:
    with pytest.raises(ViolationError) as caught:
        work()
    assert caught.value.name == name


def test_a_sequence_id_that_was_never_sent_is_not_told() -> None:
    model = sequences(sent=5, confirmed=3)
    model.connected(5)
    violates("SequenceIdsAreTrue", lambda: model.connected(6))


def test_a_broker_that_stores_has_told_of_everything_confirmed() -> None:
    model = sequences(sent=5, confirmed=3)
    model.connected(2)
    model.receipt(2, stored=False)  # one that has lost the topic may answer so
    violates("SequenceIdsAreTrue", lambda: model.receipt(4, stored=True))


def test_what_was_told_as_stored_is_not_stored_again() -> None:
    model = sequences(sent=5, confirmed=3)
    model.connected(4)
    violates("NoMessageTwice", lambda: model.receipt(4, stored=True))


@pytest.mark.parametrize(
    ("numbers", "name"),
    [
        ([0, 1, 1, 2], "NoMessageTwice"),
        ([0, 2, 1], "NoOutOfOrderEntries"),
        ([0, 1], "AllAckedEntriesAreReadable"),
    ],
)
def test_a_log_has_each_number_once_in_order(numbers: list[int], name: str) -> None:
    model = sequences(sent=5, confirmed=2)
    model.check_log([0, 1, 2, 3])
    violates(name, lambda: model.check_log(numbers))


def test_only_what_is_older_than_the_ttl_may_be_passed_over() -> None:
    model = ExpiryModel(ttl_s=2)
    for entry_id in range(4):
        model.confirmed((0, entry_id), 1000 * entry_id)
    model.gap((-1, -1), (0, 2), now_ms=3000)
    assert model.check() == 2
    model.gap((0, 0), (0, 3), now_ms=4000 - SKEW_MS - 1)
    violates("OnlyTheExpiredIsMissing", model.check)


def test_a_schema_version_means_one_definition_and_a_definition_one_version() -> None:
    model = SchemaModel()
    model.told(b"0", definition(0))
    model.told(b"0", definition(0))
    violates("SchemaVersionsStay", lambda: model.told(b"0", definition(1)))
    violates("SchemaVersionsStay", lambda: model.told(b"1", definition(0)))


def test_a_policy_is_the_last_that_was_answered_or_one_tried_after_it() -> None:
    model = PolicyModel()
    model.tried, model.answered = 5, 3
    for found in (3, 4, 5):
        model.check(found)
    for found in (2, 6):
        violates("PoliciesStay", partial(model.check, found))
