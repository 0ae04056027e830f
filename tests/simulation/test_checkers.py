"""Each checker reports the violation that it is for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.common.checkers import SubscriptionHistory, TopicHistory, ViolationError, message, numbered
from simulation.common.histories import watched

A, B, C = message("p", 0), message("p", 1), message("p", 2)


def topic(*payloads: bytes) -> TopicHistory:
    """Return a history in which these payloads were confirmed."""
    history = TopicHistory("t")
    for entry_id, payload in enumerate(payloads):
        history.receipt("connection", "p", (1, entry_id), payload)
    return history


def violates(name: str, do: Callable[[], object]) -> None:
    with pytest.raises(ViolationError) as caught:
        do()
    assert caught.value.name == name


def test_a_payload_says_who_sent_it_and_when() -> None:
    assert numbered(message("p0-1", 17, 100)) == (b"p0-1", 17)
    assert len(message("p0-1", 17, 100)) == 100


def test_a_history_without_a_mistake_passes() -> None:
    history = topic(A, B)
    history.delivery("s", (1, 0), A, done=set())
    history.check_final({(1, 0): A, (1, 1): B})


def test_a_lost_entry_is_found() -> None:
    violates("AllAckedEntriesAreReadable", lambda: topic(A, B).check_final({(1, 0): A}))


def test_a_changed_entry_is_found() -> None:
    violates("NoOutOfOrderEntries", lambda: topic(A).check_final({(1, 0): B}))


def test_a_place_confirmed_twice_is_found() -> None:
    violates("NoOutOfOrderEntries", lambda: topic(A).receipt("other", "p", (1, 0), B))


def test_receipts_that_go_back_are_found() -> None:
    violates("NoOutOfOrderEntries", lambda: topic(A, B).receipt("connection", "p", (0, 7), C))


def test_a_delivery_that_is_gone_later_is_found() -> None:
    history = topic(A)
    history.delivery("s", (1, 1), B, done=set())
    violates("NothingAboveLacIsDelivered", lambda: history.check_final({(1, 0): A}))


def test_a_delivery_of_something_else_is_found() -> None:
    violates("NoOutOfOrderEntries", lambda: topic(A).delivery("s", (1, 0), B, done=set()))


def test_a_redelivery_after_an_answered_ack_is_found() -> None:
    violates("AnsweredAcksAreDurable", lambda: topic(A).delivery("s", (1, 0), A, done={(1, 0)}))


def test_a_key_out_of_order_is_found_at_its_first_delivery_only() -> None:
    history = topic(A, B, C)
    history.subscriptions["s"] = SubscriptionHistory("key")
    history.delivery("s", (1, 1), B, "k", done=set())
    history.delivery("s", (1, 2), C, "other", done=set())
    history.delivery("s", (1, 1), B, "k", done=set())
    violates("KeysStayInOrder", lambda: history.delivery("s", (1, 0), A, "k", done=set()))


def test_a_message_withheld_from_a_subscription_is_found() -> None:
    history = topic(A, B)
    history.delivery("s", (1, 0), A, done=set())
    assert history.undelivered() == [("s", (1, 1))]
    history.ack_sent("s", [(1, 1)])
    assert history.undelivered() == []


def test_only_what_every_subscription_acknowledged_may_be_trimmed() -> None:
    history = topic(A, B)
    history.subscriptions["other"] = SubscriptionHistory()
    history.ack_sent("s", [(1, 0)])
    violates("AllAckedEntriesAreReadable", lambda: history.check_final({(1, 1): B}, trimmed=True))
    history.ack_sent("other", [(1, 0)])
    history.check_final({(1, 1): B}, trimmed=True)


def test_a_message_that_was_skipped_is_found() -> None:
    violates("NoOutOfOrderEntries", lambda: topic().check_final({(1, 0): A, (1, 1): C}))


def test_a_message_sent_again_is_none_of_the_servers_mistakes() -> None:
    topic().check_final({(1, 0): A, (1, 1): B, (1, 2): B, (1, 3): C})


def test_a_reader_that_sees_entries_out_of_order_is_found() -> None:
    violates("NoOutOfOrderEntries", lambda: topic().check_final({(1, 1): B, (1, 0): A}))


@pytest.mark.expect_error("a human must look")
def test_an_error_in_the_log_that_nobody_announced_is_found() -> None:
    from quire.service.log import get_logger

    with watched() as log:
        log.check(())
        get_logger("test").error("a human must look")
        assert log.has("human must")
        violates("NoUnannouncedErrorInTheLog", lambda: log.check(["something else"]))
        log.check(["a human must"])
        log.forget()
        assert not log.has("human must")
        with pytest.raises(ValueError, match="cause"), watched():
            raise ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("cause")])])
