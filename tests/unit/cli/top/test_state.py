"""quire.cli.top.state and view: keys and pictures of `quire top`."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from quire.cli.top.state import Page, TopState, keys_of, pressed
from quire.cli.top.view import picture, summary

ANSWER: dict[str, Any] = {
    "brokers": [{"broker": "a:1", "topics": 2, "msgRateIn": 5.0, "msgRateOut": 0}],
    "topics": [
        {
            "topic": f"persistent://public/default/{name}", "broker": "a:1", "msgRateIn": 5.0, "msgThroughputIn": 5,
            "msgRateOut": 0, "msgThroughputOut": 0, "backlog": 1234, "backlogSize": 5000, "ageSeconds": 61,
            "producers": 1, "consumers": 0, "subscriptions": 1,
        }
        for name in "xyz"
    ],
    "stuck": [
        {
            "topic": "persistent://t/n/x", "broker": "a:1", "subscription": "s", "backlog": 9, "cause": "no-consumers",
            "state": "blocked", "sentence": "9 entries wait.", "remedy": "Connect one.",
        }
    ],
    "bookies": [{"bookie": "b:3181", "state": "lost", "latencyMs": -1, "pendingReads": 0, "free": -1, "total": -1}],
    "repairs": {"underReplicated": 1000, "more": True, "disabled": True},
    "silent": ["c:1"],
}  # fmt: skip


def after(keys: str, state: TopState | None = None) -> TopState:
    found = state or TopState()
    for key in keys_of(keys):
        found = pressed(found, key, ANSWER)
    return found


def drawn(state: TopState, **more: Any) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(picture(state, ANSWER, **more))
    return console.export_text()


def test_keys_sort_choose_pages_and_move_within_the_table() -> None:
    assert after("l") == TopState(sort="lag")
    assert after("sa") == TopState(sort="age"), "an order is one of topics"
    assert (after("\t").page, after("\t\t").page, after("\t\t\t").page) == (Page.STUCK, Page.BOOKIES, Page.TOPICS)
    assert after("\x1b[B\x1b[B\x1b[B\x1b[B").selected == 2, "three topics"
    assert after("jjk").selected == 1
    assert after("\x1b[A").selected == 0
    assert after("jb").selected == 0
    assert after("q").ended
    assert after("pp").paused is False


def test_a_filter_is_typed_corrected_and_cleared() -> None:
    assert after("/lag") == TopState(filter="lag", typing=True), "keys are letters while it is typed"
    assert after("/laq\x7fg\r") == TopState(filter="lag")
    assert after("/lag\x1b") == TopState()
    assert after("/lag\r\x1b") == TopState()
    assert not after("/q").ended
    assert len(after("/" + "x" * 300).filter) == 200


def test_enter_explains_the_selected_row_and_escape_goes_back() -> None:
    assert after("j\r").detail == "persistent://public/default/y"
    assert after("s\r").detail == "persistent://t/n/x?s"
    assert after("b\r").detail == ""
    assert after("j\r\x1b") == TopState(selected=1)
    assert after("\rl").sort == "rate"


def test_the_picture_has_the_facts_and_marks_the_selected_row_by_more_than_colour() -> None:
    shown = drawn(after("lj"))
    assert "1,234    4.9 KiB  1m 1s" in shown
    assert [line[:4] for line in shown.splitlines() if line[3:4] in "xyz" and line[1:3] == "  "] == [
        "   x",
        ">  y",
        "   z",
    ]
    assert "topics by lag" in shown
    assert "9 entries wait." in drawn(after("s"))
    assert "b:3181  lost" in drawn(after("b"))
    assert summary(ANSWER).endswith("1,000 or more ledgers to repair  auto recovery is DISABLED  no answer from c:1")
    assert "no answer: timeout" in drawn(TopState(), error="timeout")


def test_more_rows_than_the_terminal_has_are_scrolled_to_the_selected_one() -> None:
    shown = drawn(after("jj"), height=8)
    assert ">  z" in shown
    assert "\n   x" not in shown
