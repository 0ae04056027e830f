"""Covers quire/world/backoff.py, and checks that no room has such a loop of its own."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from quire.world.backoff import JITTER, Backoff

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("broker", "bookie", "managed_ledger", "cursors", "autorecovery", "quire")


def test_pauses_double_up_to_the_longest_and_chance_only_shortens_them() -> None:
    backoff = Backoff(0.1, 1.0, Random(7))
    for full in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert full * (1 - JITTER) <= backoff.next() <= full


def test_after_a_success_the_pauses_begin_again() -> None:
    backoff = Backoff(0.1, 1.0, Random(7))
    for _ in range(4):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 0.1


def test_two_that_failed_together_do_not_come_back_together() -> None:
    rng = Random(7)
    pauses = [Backoff(1.0, 8.0, rng).next() for _ in range(1000)]
    assert len(set(pauses)) == 1000
    assert min(pauses) < 0.76
    assert max(pauses) > 0.99


def test_one_seed_gives_the_same_pauses() -> None:
    one, other = Backoff(1.0, 8.0, Random(3)), Backoff(1.0, 8.0, Random(3))
    assert [one.next() for _ in range(9)] == [other.next() for _ in range(9)]


def test_a_first_pause_above_the_longest_stays() -> None:
    backoff = Backoff(2.0, 1.0, Random(1))
    assert all(1.5 <= backoff.next() <= 2 for _ in range(9))


def test_no_room_doubles_its_pauses_by_hand() -> None:
    by_hand = re.compile(r"(pause|backoff|retry|delay|next_s).*\bmin\(.*(\b2(\.0)? \*|\* 2\b)")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "backoff.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if by_hand.search(line)
    ]
    assert found == []
