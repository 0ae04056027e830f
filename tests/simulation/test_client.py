"""quire.client on a seeded world: under all faults of server and network nothing is lost, doubled or out of order.

The tests run a slice of `python -m simulation --history client --seeds 0..199`; `scripts/test --full` runs all of it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quire.client.message_id import MessageId
from quire.client.producer import Producer
from quire.client.reader import Reader
from quire.client.subscription import Subscription
from quire.wire.pulsar.client_splitter import MessageRun
from simulation.common.sweep import run_one, sweep
from tests.simulation.histories import JOBS, Histories

SLICE = (0, 1, 7)
"""The last one is also that of test_determinism.py."""
SEEDS_PER_BUG = range(30)


def test_a_client_loses_nothing_while_servers_crash_and_networks_reset(histories: Histories) -> None:
    outcomes = histories.of("client", SLICE)
    assert [each.line for each in outcomes if not each.ok] == []
    assert len(outcomes) == len(SLICE)


@pytest.mark.full
def test_two_hundred_seeds_of_the_client_history() -> None:
    outcomes = list(sweep(["client"], range(200), jobs=JOBS))
    assert [each.line for each in outcomes if not each.ok] == []


def entries_come_again(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: after a reconnect the last entry is delivered again."""

    def drop(self: Reader, run: MessageRun) -> int:
        return 0

    patch.setattr(Reader, "_drop_known", drop)


def entries_are_skipped(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: after a reconnect a reader begins one entry too late."""
    from quire.client import reader

    patch.setattr(reader, "_resume", lambda ledger_id, entry_id: MessageId(ledger_id, entry_id + 2))


def the_end_moves_on(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: a reader at the end that loses its connection before the first entry begins at the new end.

    The queue keeps its entries, so any reader without new entries is in that state.
    """
    from quire.client import reader

    patch.setattr(reader, "_resume", lambda ledger_id, entry_id: MessageId.LATEST)


def sends_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: messages without a receipt are not sent again."""
    lost: Callable[..., None] = Producer.lost

    def forgetful(self: Producer, error: Exception) -> None:
        self._entries.clear()
        self._counts.clear()
        self._bytes = 0
        for _, _, enough in self._waiters:
            enough.set()
        lost(self, error)

    patch.setattr(Producer, "lost", forgetful)


def acknowledge_only_here(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: the client itself answers every other acknowledgement."""
    acknowledge = Subscription.acknowledge
    calls = [0]

    async def lazy(self: Subscription, through: MessageId) -> None:
        calls[0] += 1
        if calls[0] % 2:
            await acknowledge(self, through)

    patch.setattr(Subscription, "acknowledge", lazy)


@pytest.mark.parametrize(
    ("bug", "names"),
    [
        (entries_come_again, {"EachEntryOnceInOrder"}),
        (entries_are_skipped, {"NoEntryIsLeftOut"}),
        (the_end_moves_on, {"NoEntryIsLeftOut"}),
        (sends_are_forgotten, {"AllAckedEntriesAreReadable", "NoOutOfOrderEntries"}),
        (acknowledge_only_here, {"AnsweredAcksAreDurable"}),
    ],
)
def test_a_bug_in_the_client_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    for seed in SEEDS_PER_BUG:
        outcome = run_one("client", seed)
        assert outcome.ok or outcome.violation in names, outcome.line + outcome.details
        if not outcome.ok:
            return
    pytest.fail(f"not found by {len(SEEDS_PER_BUG)} seeds")
