from __future__ import annotations

import pytest

from managed_ledger.config import LogConfig, ManagedLedgerConfig
from managed_ledger.ledger_list import LedgerInfo
from managed_ledger.trimming import Kept, Retention, trimmable
from quire.ledger.position import Position

LEDGERS = [LedgerInfo(ledger_id=n, entries=10, size=100, closed_ms=1000 * n) for n in (1, 2, 3)] + [
    LedgerInfo(ledger_id=4)
]


NOTHING_KEPT = Retention()


def trim(slowest: Position | None, retention: Retention = NOTHING_KEPT, now_ms: int = 10_000) -> list[int]:
    return trimmable(LEDGERS, 4, slowest, retention, total_size=350, now_ms=now_ms).found


@pytest.mark.parametrize(
    ("slowest", "gone"),
    [
        (Position(1, -1), []),
        (Position(1, 8), []),
        (Position(1, 9), [1]),
        (Position(2, -1), [1]),
        (Position(3, 9), [1, 2, 3]),
        (Position(4, 50), [1, 2, 3]),
        (None, [1, 2, 3]),
    ],
)
def test_a_ledger_goes_when_the_slowest_durable_cursor_has_passed_all_of_it(
    slowest: Position | None, gone: list[int]
) -> None:
    assert trim(slowest) == gone


def test_the_current_ledger_never_goes() -> None:
    assert 4 not in trim(Position(99, 0))


def test_without_limits_everything_is_kept() -> None:
    assert trim(None, Retention(time_ms=-1, size=-1)) == []


def test_retention_by_time_keeps_what_was_closed_lately() -> None:
    assert trim(None, Retention(time_ms=8500, size=-1)) == [1]
    assert trim(None, Retention(time_ms=8000, size=-1), now_ms=10_001) == [1, 2]


def test_retention_by_size_keeps_the_newest_bytes() -> None:
    assert trim(None, Retention(time_ms=-1, size=250)) == [1]
    assert trim(None, Retention(time_ms=-1, size=251)) == []
    assert trim(None, Retention(time_ms=-1, size=0)) == [1, 2, 3]


def test_either_limit_is_enough_to_go() -> None:
    assert trim(None, Retention(time_ms=1 << 40, size=150)) == [1, 2]


def test_the_first_ledger_that_is_kept_ends_it() -> None:
    late = [LedgerInfo(ledger_id=1, entries=1, size=1, closed_ms=9_999), *LEDGERS[1:]]
    assert trimmable(late, 4, None, Retention(time_ms=100, size=-1), total_size=1, now_ms=10_000).found == []


def test_the_defaults_keep_nothing_that_is_consumed() -> None:
    assert Retention.of(LogConfig.of(ManagedLedgerConfig())) == Retention(time_ms=0, size=0)
    assert Retention.of(LogConfig.of(ManagedLedgerConfig(retention_minutes=-1, retention_mb=-1))) == Retention(
        time_ms=-1, size=-1
    )
    assert Retention.of(LogConfig.of(ManagedLedgerConfig(retention_minutes=2, retention_mb=3))) == Retention(
        time_ms=120_000, size=3 << 20
    )


@pytest.mark.parametrize(
    ("slowest", "retention", "found", "kept"),
    [
        (Position(2, 3), NOTHING_KEPT, [1], Kept.CURSOR),
        (Position(1, -1), Retention(time_ms=-1, size=-1), [], Kept.CURSOR),
        (None, Retention(time_ms=8500, size=-1), [1], Kept.RETENTION),
        (None, Retention(time_ms=-1, size=-1), [], Kept.RETENTION),
        (None, NOTHING_KEPT, [1, 2, 3], Kept.CURRENT),
    ],
)
def test_the_choice_says_why_the_next_ledger_is_kept(
    slowest: Position | None, retention: Retention, found: list[int], kept: Kept
) -> None:
    choice = trimmable(LEDGERS, 4, slowest, retention, total_size=350, now_ms=10_000)
    assert (choice.found, choice.kept) == (found, kept)


def test_a_list_that_goes_wholly_keeps_nothing() -> None:
    assert trimmable(LEDGERS[:2], -1, None, NOTHING_KEPT, total_size=200, now_ms=10_000) == ([1, 2], None)
