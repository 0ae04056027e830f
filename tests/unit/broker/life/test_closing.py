"""broker.topics.life.closing: topics with clients are closed first, and idle ones a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import trio

from broker.topics.life.closing import CLOSING_MAX, PROGRESS_S, close_in_order


def topic(number: int, *, producers: int = 0, consumers: int = 0, at_once: bool = False) -> Any:
    held = {"s": SimpleNamespace(consumers=range(consumers))}
    return SimpleNamespace(
        number=number,
        name=SimpleNamespace(full=f"topic-{number}"),
        producers=range(producers),
        subscriptions=held,
        closing=False,
        transactions=None,
        deduplication=None,
        ledger=SimpleNamespace(close_at_once=lambda: at_once),
        disconnect_all=lambda: None,
    )


def loaded(topics: Iterable[Any]) -> dict[str, Any]:
    return {each.name.full: each for each in topics}


class Closes:
    """Closes of topics, each of which takes a second."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.under_way = 0
        self.most = 0

    async def close(self, closed: Any) -> None:
        self.begun.append(closed.number)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await trio.sleep(1.0)
        self.under_way -= 1


async def test_of_very_many_idle_topics_a_bounded_number_is_closed_at_a_time() -> None:
    closes = Closes()
    await close_in_order(loaded(map(topic, range(3 * CLOSING_MAX))), closes.close)
    assert closes.most == CLOSING_MAX
    assert sorted(closes.begun) == list(range(3 * CLOSING_MAX))
    assert trio.current_time() == 3.0


async def test_topics_with_clients_are_all_closed_first_so_that_these_go_elsewhere_at_once() -> None:
    closes = Closes()
    idle = [topic(number) for number in range(10)]
    used = [topic(number, producers=number % 2, consumers=1 - number % 2) for number in range(10, 20 + CLOSING_MAX)]
    await close_in_order(loaded([*idle, *used]), closes.close)
    assert closes.begun[-10:] == list(range(10))
    assert closes.most == len(used)


async def test_idle_topics_with_nothing_to_store_are_closed_before_the_others_and_without_a_task() -> None:
    closes = Closes()
    of_name = loaded(topic(number, at_once=number % 3 > 0) for number in range(3 * CLOSING_MAX))
    await close_in_order(of_name, closes.close)
    assert closes.begun == list(range(0, 3 * CLOSING_MAX, 3))
    assert trio.current_time() == 1.0
    assert [each.number for each in of_name.values()] == closes.begun, "only these are left to be removed by `close`"


async def test_a_topic_with_transactions_or_deduplication_is_not_closed_at_once() -> None:
    closes = Closes()
    busy = [topic(number, at_once=True) for number in range(3)]
    busy[0].transactions = busy[1].deduplication = object()
    await close_in_order(loaded(busy), closes.close)
    assert sorted(closes.begun) == [0, 1]


async def test_a_long_stop_says_now_and_then_how_far_it_has_got(log_events: list[dict[str, Any]]) -> None:
    closes, count = Closes(), int(2.5 * PROGRESS_S) * CLOSING_MAX
    await close_in_order(loaded(map(topic, range(count))), closes.close)
    lines = [each for each in log_events if each["event"] == "closing topics"]
    assert len(lines) == 2
    assert [each["closed"] + each["left"] for each in lines] == [count, count]
    assert lines[0]["closed"] < lines[1]["closed"]


async def test_a_stop_that_is_cut_off_says_how_many_topics_are_left(log_events: list[dict[str, Any]]) -> None:
    closes = Closes()
    with trio.move_on_after(1.5):
        await close_in_order(loaded(map(topic, range(3 * CLOSING_MAX))), closes.close)
    [line] = [each for each in log_events if "not closed in time" in each["event"]]
    assert (line["closed"], line["left"]) == (CLOSING_MAX, 2 * CLOSING_MAX)
