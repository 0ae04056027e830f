"""Attempts to log in, their windows and their log lines (quire/service/neighbours)."""

from __future__ import annotations

from typing import Any

import trio

from quire.service.neighbours.addresses import place_of
from quire.service.neighbours.logins import CREDENTIALS_MAX, TOO_MANY, WINDOW_S, Logins
from quire.service.neighbours.rare_lines import ADDRESSES_MAX, LINES_MAX, LINES_OF_ALL_MAX, RareLines
from quire.service.neighbours.windows import Windows

PEER = "10.0.0.1:5000"


def wrong(logins: Logins, credentials: bytes, now: float, peer: str = PEER) -> bool:
    """Try wrong credentials; return whether they were checked."""
    if logins.refusal(peer, credentials, now):
        return False
    logins.failed(credentials, "wrong", now)
    logins.count(peer, now)
    return True


def test_a_window_of_a_key_begins_with_its_first_count_and_ends_as_a_whole() -> None:
    windows: Windows[str] = Windows(60, 10)
    assert windows.add("a", 0) == []
    assert windows.add("b", 30) == []
    assert windows.add("a", 59) == []
    assert (windows.count("a", 59), windows.count("a", 60), windows.count("b", 60)) == (2, 0, 1)
    assert windows.add("a", 61) == [("a", 2)]
    assert windows.ended(200) == [("b", 1), ("a", 1)]
    assert len(windows) == 0


def test_windows_never_hold_more_keys_than_their_bound() -> None:
    windows: Windows[int] = Windows(60, 10)
    ended = [each for key in range(1000) for each in windows.add(key, 0)]
    assert len(windows) == 10
    assert ended == [(key, 1) for key in range(990)]


def test_the_same_wrong_credentials_are_checked_once_in_a_minute_and_count_once() -> None:
    """Five hundred clients whose tokens have expired reconnect all the time, with a good one behind the same proxy."""
    logins = Logins(600)
    checked = sum(wrong(logins, b"token %d" % client, second / 100) for second in range(50) for client in range(500))
    assert checked == 500
    assert logins.unchecked == 50 * 500 - 500
    assert logins.refusal(PEER, b"a fresh token", 0.5) == "", "others of the address are served"
    assert wrong(logins, b"token 1", WINDOW_S + 1), "they may have become right"


def test_different_wrong_credentials_of_an_address_are_bounded_and_those_that_were_right_are_not() -> None:
    logins = Logins(600)
    logins.succeeded(b"good", "role")
    assert sum(wrong(logins, b"guess %d" % number, number / 1000) for number in range(20_000)) == 600
    assert logins.refusal(PEER, b"another", 20) == TOO_MANY
    assert logins.refusal(PEER, b"good", 20) == ""
    assert logins.refusal("10.0.0.2:1", b"another", 20) == "", "other addresses are not concerned"
    assert logins.refusal(PEER, b"another", WINDOW_S) == ""


def test_credentials_that_time_can_make_right_are_checked_again_at_once() -> None:
    logins = Logins(600)
    logins.failed(b"early", "not valid yet", 0, may_pass=True)
    assert logins.refusal(PEER, b"early", 0.1) == ""


def test_nothing_grows_without_bound_and_no_credential_is_kept() -> None:
    logins = Logins(0)
    for number in range(CREDENTIALS_MAX + 500):
        wrong(logins, b"wrong %d" % number, 0)
        logins.succeeded(b"right %d" % number, number)
    assert len(logins._wrong) == len(logins._right) == CREDENTIALS_MAX
    assert logins.proved(b"right 0") is None
    assert logins.proved(b"right 9999") == 9999
    assert b"right" not in b"".join(logins._right)
    assert logins.proved(b"right 9999", "another provider") is None


def test_a_network_of_ipv6_is_one_place() -> None:
    assert place_of("2001:db8::1:6650") == place_of("2001:db8::ffff:1:6650") == "2001:db8::/64"
    assert place_of("::ffff:10.0.0.1:6650") == "10.0.0.1"
    assert place_of("fe80::1%eth0:6650") == "fe80::/64"
    assert place_of("pipe") == ""


async def test_an_address_has_a_few_lines_in_a_minute_and_one_with_the_count_of_the_others(
    log_events: list[dict[str, Any]],
) -> None:
    rare = RareLines()
    assert sum(rare.admits("refused", PEER) for _ in range(10_000)) == LINES_MAX
    assert rare.admits("refused", "10.0.0.2:1")
    assert rare.admits("broken", PEER), "of each kind"
    assert rare.admits("refused", PEER, "another reason"), "and for each reason"
    await trio.sleep(61)
    rare.settle()
    counts = [each for each in log_events if each["event"] == "lines left out"]
    assert [(each["of"], each["connection"], each["count"]) for each in counts] == [
        ("refused", "10.0.0.1", 10_000 - LINES_MAX)
    ]
    assert rare.admits("refused", PEER)


async def test_a_flood_from_many_addresses_writes_a_bounded_number_of_lines(log_events: list[dict[str, Any]]) -> None:
    rare = RareLines()
    written = sum(rare.admits("refused", f"10.{a}.{b}.1:5") for a in range(100) for b in range(200))
    assert written == LINES_OF_ALL_MAX
    assert len(rare._of_address) == ADDRESSES_MAX
    await trio.sleep(61)
    rare.settle()
    counts = [each for each in log_events if each["event"] == "lines left out"]
    assert [each["count"] for each in counts] == [20_000 - LINES_OF_ALL_MAX]
