"""The histories find bugs: each planted one is found within a few seeds, under the right name.

bites.txt keeps seeds that found them: `scripts/test` runs those first, and searches a few if one does not find its bug
any more, since what a seed draws changes with the histories. `scripts/test --full` searches from the beginning, with a
limit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulation.common.bugs import BUGS
from simulation.common.sweep import Outcome, Work
from tests.simulation.histories import JOBS, Histories

SEEDS = range(16)
"""Seeds of a quick search. A longer one, by hand: `python -m simulation --history H --seeds 0..199 --plant BUG`."""
FULL_SEEDS = range(1000, 4000)
SEARCH_S = 600.0
LOST = {"AllAckedEntriesAreReadable", "AllCommittedEntriesReachAckQuorum", "NoDivergenceBetweenClientAndMetaData"}
EXPECTED = {
    ("ack-before-fsync", "standalone"): {
        "NoSilentLoss",
        "AllAckedEntriesAreReadable",
        "AnsweredAcksAreDurable",
        "NoOutOfOrderEntries",
    },
    ("fence-after-answer", "fencing"): {"NoDivergenceBetweenClientAndMetaData"},
    ("lastMark-before-index-sync", "standalone"): {"AllAckedEntriesAreReadable", "AnsweredAcksAreDurable"},
    ("ack-answered-before-append", "standalone"): {"AnsweredAcksAreDurable"},
    ("WAL-tail-tolerated", "standalone"): {"NoSilentLoss"},
    ("mark-trusted", "standalone"): {"NoSilentLoss"},
    ("delivery-above-LAC", "standalone"): {"NothingAboveLacIsDelivered", "NoOutOfOrderEntries"},
    ("ack-before-fsync", "ledger"): LOST,
    ("directory-passed", "spread"): LOST,
    ("failed-directory-passed", "spread"): LOST,
    ("recovery-reads-do-not-fence", "ledger"): {*LOST, "FencedWritersNeverConfirm"},
    ("LAC-bound-removed", "ledger"): {*LOST, "NothingAboveLacIsRead"},
    ("coverage-loosened", "ledger"): {"FencedWritersNeverConfirm", *LOST},
    ("acks-of-replaced-kept", "ledger"): {"AllAckedEntriesAreReadable", "AllCommittedEntriesReachAckQuorum"},
    ("fence-forgotten", "ledger"): {"FencedWritersNeverConfirm"},
    ("fence-ignored", "cluster"): {*LOST, "FencedWritersNeverConfirm", "FencedOwnersNeverConfirm"},
    ("member-replaced-early", "cluster"): {"RepairedFragmentsAreWhole"},
    ("lost-bookie-ignored", "cluster"): {"LostBookiesAreReplaced"},
    ("missed-copies-ignored", "cluster"): {"MissedCopiesAreFound"},
    ("list-closed-short", "cluster"): {"ListsAgreeWithLedgers"},
    ("former-bundles-left", "cluster"): {"BundlesAreTaken"},
    ("intent-forgotten", "cluster"): {"LedgersNeverLeak"},
    ("orphan-on-unsubscribe", "standalone"): {"LedgersNeverLeak"},
    ("delay-forgotten-by-restart", "standalone"): {"DelayedIsNotEarly"},
    ("ack-answered-before-append", "cluster"): {"AnsweredAcksAreDurable"},
    ("compacted-ledger-deleted-early", "compaction"): {
        "CompactedViewIsLatest",
        "ListsAgreeWithLedgers",
        "NoUnannouncedErrorInTheLog",
    },
    ("orphan-of-compaction", "compaction"): {"LedgersNeverLeak"},
    ("key-not-journalled-again", "reuse"): {"AllAckedEntriesAreReadable"},
    ("former-life-replayed", "reuse"): {"NothingOfAFormerLifeIsRead"},
    ("wake-forgotten", "explain"): {"WaitingMessagesHaveACause"},
    ("wake-forgotten", "standalone"): {"WaitingMessagesHaveACause"},
    ("permit-leaked", "explain"): {"PermitsAreAccounted"},
    ("unacked-leaked", "explain"): {"ExplanationsAreTrue"},
    ("key-not-released", "explain"): {"ExplanationsAreTrue", "RemovedCausesLetMessagesFlow"},
    ("sequence-ids-forgotten", "life"): {"SequenceIdsAreTrue", "NoMessageTwice"},
    ("expired-early", "life"): {"OnlyTheExpiredIsMissing"},
    ("subscription-expired-early", "life"): {"OnlyUnusedSubscriptionsExpire"},
    ("quota-evicts-all", "life"): {"OnlyTheOldestAreEvicted"},
    ("quota-not-enforced", "life"): {"QuotasAreKept", "OnlyTheOldestAreEvicted"},
    ("retention-forgotten", "life"): {"RetainedIsReadable"},
    ("deleted-with-subscriptions", "life"): {"OnlyUnusedTopicsAreDeleted"},
    ("tombstone-not-stored", "life"): {"TheDeletedStaysDeleted"},
    ("schema-unchecked", "life"): {"IncompatibleIsRefused"},
    ("consumers-left-behind", "life"): {"EveryConfirmedEntryIsDelivered", "AnsweredAcksAreDurable"},
    ("trimmed-uncompacted", "life"): {"PoliciesStay"},
    ("limbo-denied", "losing"): {"LimboDeniesNothing"},
    ("limbo-denied", "day"): {"LimboDeniesNothing"},
    ("limbo-ended-early", "losing"): LOST,
    ("old-image-trusted", "losing"): LOST,
    ("kill-forgotten", "losing"): LOST,
    ("limbo-ended-early", "housekeeping"): LOST,
    ("directory-passed", "housekeeping"): LOST,
    ("copies-not-synced", "day"): {"ReplicasAreEqual"},
    ("log-deleted-before-index-sync", "day"): {"ReplicasAreEqual"},
    ("rows-moved-blindly", "day"): {"NothingDeletedComesBack", "ReplicasAreEqual"},
    ("torn-log-is-empty", "day"): {"ReplicasAreEqual", "NothingDeletedComesBack"},
    ("usage-not-worked-out-anew", "day"): {"DiskUseIsBounded"},
    ("moved-row-dropped", "day"): {*LOST, "EveryLedgerHasItsCopies"},
    ("healed-unseen", "day"): {"ReplicasAreEqual"},
    ("object-unverified", "offload"): {"EveryLedgerHasACopy", "AllAckedEntriesAreReadable"},
    ("object-forgotten", "offload"): {"ObjectsNeverLeak"},
    ("object-deleted-first", "offload"): {"EveryLedgerHasACopy", "AllAckedEntriesAreReadable"},
    ("second-source-ignored", "offload"): {"AllAckedEntriesAreReadable"},
    ("snapshot-without-aborted", "transactions"): {"AllOrNothing"},
    ("held-acks-forgotten", "transacting"): {"AllOrNothing", "NobodyWaitsForEver"},
}
RARE = {"fence-forgotten", "rows-moved-blindly"}
"""Bugs that too few seeds find for a quick search. `--full` searches for those of the history ledger; unit tests and
mutants find all of them at once. `rows-moved-blindly` needs a deletion amid a compaction: garbage collection waits for
compactions, and simulated bookies do not search for over-replicated ledgers, so only a deletion that failed half-way,
and that a flush continues, is left."""
SLOW = {
    "usage-not-worked-out-anew",
    "log-deleted-before-index-sync",
    "copies-not-synced",
    "moved-row-dropped",
    "healed-unseen",
}
"""Bugs that take a seed of 10 s to be found: `--full` looks for them, and unit tests and mutants find them at once."""
HOUSEKEEPING = "housekeeping"
"""Its bugs are found by `losing`, `spread` and `day` too; `--full` looks for them in this history."""
LEDGER_BUGS = sorted(bug for bug, history in EXPECTED if history == "ledger")


def is_dear(bug: str, history: str) -> bool:
    """Return whether only `--full` looks for the bug in this history."""
    return bug in SLOW or history == HOUSEKEEPING


def found_by() -> dict[tuple[str, str], list[int]]:
    """Return the seeds that found a bug, by bug and history."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for line in (Path(__file__).parent / "bites.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            bug, history, seed = line.split()
            seeds.setdefault((bug, history), []).append(int(seed))
    return seeds


@pytest.fixture(scope="module")
def known(histories: Histories) -> dict[tuple[str, str], Outcome]:
    """Return the last lines of the seeds that found them: of each bug the first that still does."""
    known = [(each, seeds) for each, seeds in found_by().items() if not is_dear(*each)]
    work = [Work(history, seed, bug) for (bug, history), seeds in known for seed in seeds]
    outcomes: dict[tuple[str, str], Outcome] = {}
    for each, outcome in zip(work, histories.outcomes(work), strict=True):
        if outcome.violation in EXPECTED[each.bug, each.history]:
            outcomes.setdefault((each.bug, each.history), outcome)
    return outcomes


def search(histories: Histories, bug: str, history: str, seeds: Sequence[int]) -> Outcome | None:
    """Return the first outcome that shows the bug under the right name."""
    for begin in range(0, len(seeds), JOBS):
        for outcome in histories.outcomes([Work(history, seed, bug) for seed in seeds[begin : begin + JOBS]]):
            if outcome.violation in EXPECTED[bug, history]:
                return outcome
    return None


def test_every_bug_is_looked_for() -> None:
    assert {bug for bug, _ in EXPECTED} == set(BUGS)


@pytest.mark.parametrize(
    ("bug", "history"),
    [
        pytest.param(*each, marks=pytest.mark.full if is_dear(*each) else ())
        for each in sorted(EXPECTED)
        if each[0] not in RARE
    ],
)
def test_a_planted_bug_is_found(
    bug: str,
    history: str,
    known: dict[tuple[str, str], Outcome],
    histories: Histories,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = found_by().get((bug, history), ()) if is_dear(bug, history) else ()
    outcome = known.get((bug, history)) or search(histories, bug, history, [*first, *SEEDS])
    assert outcome is not None, f"{bug} is not found by its seeds in bites.txt, nor by {SEEDS} of {history}"
    with capsys.disabled():
        print(f"{bug} is found by {history} {outcome.line[:150]}")
        if (bug, history) not in known and outcome.seed not in first:
            print(f"(its line in bites.txt finds it no longer, so each run searches: write {outcome.seed} there)")


@pytest.mark.full
@pytest.mark.parametrize("bug", LEDGER_BUGS)
def test_a_bug_of_the_ledger_tier_is_found_within_ten_minutes(
    bug: str, histories: Histories, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    outcome = search(histories, bug, "ledger", FULL_SEEDS)
    took = time.monotonic() - begun
    assert outcome is not None, f"{bug} is not found by {len(FULL_SEEDS)} seeds"
    with capsys.disabled():
        print(f"{bug} is found after {outcome.seed - FULL_SEEDS[0] + 1} seeds, {took:.0f} s: {outcome.line[:150]}")
    assert took < SEARCH_S
