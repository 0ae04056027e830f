from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import trio
from kazoo.exceptions import ConnectionLoss

from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.zookeeper.calls import Call, Calls, LostError
from tests.support.refusals import refuses


class FakeSender:
    """A sender that records the requests; `post` runs at once."""

    def __init__(self) -> None:
        self.sent: deque[tuple[Any, Call]] = deque()
        self.last_zxid = 0

    def send(self, request: Any, answer: Any, /) -> None:
        self.last_zxid += 1
        self.sent.append((request, answer))

    def post(self, func: Callable[..., None], /, *args: Any) -> None:
        func(*args)

    def answer(self) -> None:
        request, call = self.sent.popleft()
        call.set(request)


def calls(in_flight_max: int = 2, waiting_max: int = 3) -> tuple[FakeSender, Calls, list[Call]]:
    sender, late = FakeSender(), list[Call]()
    made = Calls(sender, in_flight_max=in_flight_max, waiting_max=waiting_max, late=late.append)
    made.connected(7)
    return sender, made, late


def requests(sender: FakeSender) -> list[Any]:
    return [request for request, _ in sender.sent]


def test_no_more_are_in_flight_than_allowed_and_the_line_has_an_end() -> None:
    sender, made, _ = calls()
    for number in range(5):
        made.ask(number)
    assert requests(sender) == [0, 1]
    assert made.in_flight == 2
    refuses(MetadataUnavailableError, lambda: made.ask(5))
    sender.answer()
    assert requests(sender) == [1, 2]
    made.ask(6)
    for _ in range(5):
        sender.answer()
    assert made.in_flight == 0


def test_who_was_abandoned_in_the_line_makes_room_and_is_not_sent() -> None:
    sender, made, _ = calls(in_flight_max=1)
    asked = [made.ask(number) for number in range(4)]
    asked[2].abandoned = True
    made.ask(4)
    while sender.sent:
        assert requests(sender) != [2]
        sender.answer()
    assert [call.settled for call in asked] == [True, True, False, True]


def test_what_was_not_sent_when_the_connection_went_is_sent_in_the_next_one() -> None:
    sender, made, late = calls()
    asked = [made.ask(number, nobodys=number == 3) for number in range(4)]
    made.disconnected()
    for _, call in list(sender.sent):
        call.set_exception(ConnectionLoss())
    sender.sent.clear()
    assert made.ask(4).settled is False
    assert sender.sent == deque()
    made.connected(7)
    assert requests(sender) == [2, 4]
    assert [type(call.error) for call in asked[:2]] == [LostError, LostError]
    assert late == asked[:2]


def test_a_second_word_on_a_call_changes_nothing() -> None:
    _, made, _ = calls()
    call = made.ask("a")
    call.set(1)
    call.set_exception(ConnectionLoss())
    call.set(2)
    assert (call.value, call.error) == (1, None)


def test_an_expired_session_loses_all_that_is_in_flight_and_an_ended_one_everything() -> None:
    _, made, _ = calls()
    asked = [made.ask(number) for number in range(4)]
    made.session_expired()
    assert [call.settled for call in asked] == [True, True, False, False]
    made.end(lambda: SessionExpiredError("over"))
    assert [type(call.error) for call in asked[2:]] == [SessionExpiredError] * 2
    assert asked[2].error is not asked[3].error
    refuses(SessionExpiredError, lambda: made.ask(9))


@pytest.mark.real_clock
async def test_a_lost_call_knows_when_it_was_sent() -> None:
    sender, made, _ = calls()
    made.ask("before")
    call = made.ask("a")
    call.set_exception(ConnectionLoss())
    with pytest.raises(LostError) as caught:
        await call.answer()
    assert (caught.value.session, caught.value.zxid) == (7, 1)
    assert len(sender.sent) == 2


@pytest.mark.real_clock
async def test_who_stops_waiting_abandons_the_call_and_it_is_told_when_it_was_done() -> None:
    sender, made, late = calls()
    call = made.ask("a")
    with trio.move_on_after(0):
        await call.answer()
    assert call.abandoned
    assert late == []
    sender.answer()
    assert late == [call]


def test_an_answer_that_is_not_understood_is_an_unknown_outcome_and_makes_room() -> None:
    sender, made, late = calls(in_flight_max=1)
    first, second = made.ask("a"), made.ask("b")
    sender.sent.popleft()
    first.set_exception(ValueError("garbled"))
    assert type(first.error) is MetadataUnavailableError
    assert "garbled" in str(first.error)
    assert late == [first]
    assert requests(sender) == ["b"]
    assert not second.settled
