"""One bit flips in any file of a bookie: it is found or harmless, never delivered, and never a silent loss.

The files are real, so the indexes of RocksDB have theirs; test_damage.py has other damage on simulated disks, and
tests/cluster/test_damage.py whole servers. Three planted bugs show that the seeds can fail. Covers bookie/,
bookie/scrubber/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bookie import recovery
from bookie.journal.format import NO_MARK, LogMark
from bookie.journal.seal import ReplayPlan, Sealed
from quire.service.log import Event
from quire.wire.bookkeeper.entry import Digest
from quire.world import map_witness, real_key_value
from quire.world.unwrap import leaves
from tests.support.effort import effort
from tests.unit.bookie.flips import DAMAGED, HARMLESS, MAP, REFUSED, Image, make_image, outcome_of

pytestmark = pytest.mark.real_clock(seconds=900)
FULL = 200
SEEDS = effort(quick=6, full=FULL)
RIGHT = {REFUSED, DAMAGED, MAP, HARMLESS}


@pytest.fixture
async def image(tmp_path: Path) -> Image:
    return await make_image(tmp_path)


async def test_a_flipped_bit_of_any_file_is_found_or_harmless(image: Image, log_events: list[Event]) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcomes[await outcome_of(image, seed)] += 1
        log_events.clear()  # damage is an error of the log, as it should be
    print(dict(outcomes))
    assert outcomes.keys() <= RIGHT
    assert len(outcomes) > 1


# --- planted bugs: the same seeds find them


def digest_not_verified(patch: pytest.MonkeyPatch) -> None:
    def blind(self: Digest, ledger_id: int, entry_id: int, entry: memoryview) -> memoryview:
        return entry[self.overhead :]

    patch.setattr(Digest, "open", blind)


def index_believed(patch: pytest.MonkeyPatch) -> None:
    """RocksDB opens its files up to the first damage, and nothing proves what was synced behind it."""
    patch.setattr(map_witness, "_check_prefix", lambda file, data, prefix, found: True)
    patch.setattr(real_key_value, "_check_sequence", lambda path, expected, found: None)


def last_mark_believed(patch: pytest.MonkeyPatch) -> None:
    """Replay uses lastMark and the apparent end of the journal, and ignores the seal."""

    def trusting(last_mark: LogMark | None, sealed: Sealed | None, ids: list[int], **_: str) -> ReplayPlan:
        mark = last_mark or NO_MARK
        return ReplayPlan(mark, mark.file_id)

    patch.setattr(recovery, "plan_replay", trusting)


BITES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], int]] = {
    "digest-not-verified": (digest_not_verified, 61),
    "index-believed": (index_believed, 102),
    "last-mark-believed": (last_mark_believed, 46),
}
"""Planted bugs, and a seed that finds each. It is tried first, then all of `scripts/test --full`."""


async def is_wrong(image: Image, seed: int) -> bool:
    """Return whether damage is delivered, or something is silently lost."""
    try:
        return await outcome_of(image, seed) not in RIGHT
    except BaseException as error:
        if not any(isinstance(each, (AssertionError, pytest.fail.Exception)) for each in leaves(error)):
            raise
        return True


@pytest.mark.parametrize("bug", BITES)
async def test_a_planted_bug_is_found_by_a_flipped_bit(
    bug: str, image: Image, monkeypatch: pytest.MonkeyPatch, log_events: list[Event]
) -> None:
    planted, known = BITES[bug]
    assert not await is_wrong(image, known), "without the bug the seed is right"
    planted(monkeypatch)
    found = [known] if await is_wrong(image, known) else []
    for seed in () if found else range(FULL):
        if await is_wrong(image, seed):
            found = [seed]
            print(f"seed {known} finds {bug} no longer, and {seed} does: write it into BITES")
            break
    log_events.clear()
    assert found, f"none of {FULL} seeds finds it"
