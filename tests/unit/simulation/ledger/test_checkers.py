"""Each checker of ledgers reports the violation that it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from quire.metadata import ledger_codec
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from simulation.common.checkers import ViolationError
from simulation.ledger.checkers import LedgerChecker, LedgerHistory

METADATA = LedgerMetadata(ensemble_size=3, write_quorum=3, ack_quorum=2, fragments=(Fragment(0, ("a", "b", "c")),))
A, B, C = b"entry 0", b"entry 1", b"entry 2"


class Cluster:
    """Bookies with the entries that they have of one ledger. It has three entries, two of them confirmed."""

    def __init__(self) -> None:
        self.entries: dict[str, set[int] | None] = {bookie: {0, 1, 2} for bookie in "abcd"}
        self.fences: set[str] = set()
        self.checker = LedgerChecker(self.has, self.fenced)
        self.store(METADATA)
        self.history: LedgerHistory = self.checker.created(7, "writer")
        self.history.payloads += [A, B, C]
        self.checker.confirmed(self.history, 0, 1)

    def has(self, bookie_id: str, ledger_id: int, entry_id: int) -> bool | None:
        entries = self.entries[bookie_id]
        return None if entries is None else entry_id in entries

    def fenced(self, bookie_id: str, ledger_id: int) -> bool | None:
        return None if self.entries[bookie_id] is None else bookie_id in self.fences

    def store(self, metadata: LedgerMetadata) -> None:
        self.checker.metadata_changed(7, ledger_codec.encode(metadata))

    def close(self, last: int, length: int) -> None:
        self.store(replace(METADATA, state=LedgerState.CLOSED, last_entry_id=last, length=length))


def violates(name: str, do: Callable[[], object]) -> None:
    with pytest.raises(ViolationError) as caught:
        do()
    assert caught.value.name == name


def test_a_history_without_a_mistake_passes() -> None:
    cluster = Cluster()
    checker = cluster.checker
    checker.confirmed(cluster.history, 2, 2)
    cluster.fences |= {"a", "b"}
    cluster.store(replace(METADATA, state=LedgerState.IN_RECOVERY))
    checker.fencing_ended(7, METADATA)
    cluster.close(2, 21)
    checker.lac_seen(cluster.history, -1, 2)
    checker.entries_read(cluster.history, 0, [A, B, C])
    checker.check_final()


def test_confirmations_out_of_order_and_of_nothing_are_found() -> None:
    cluster = Cluster()
    violates("NoOutOfOrderEntries", lambda: cluster.checker.confirmed(cluster.history, 1, 2))
    violates("NoOutOfOrderEntries", lambda: cluster.checker.confirmed(cluster.history, 2, 3))


def test_a_confirmation_without_an_ack_quorum_is_found() -> None:
    cluster = Cluster()
    cluster.entries |= {"a": {0, 1}, "b": {0, 1}}
    violates("AllCommittedEntriesReachAckQuorum", lambda: cluster.checker.confirmed(cluster.history, 2, 2))


def test_what_a_bookie_lost_is_found_when_it_is_back_and_not_while_it_is_down() -> None:
    cluster = Cluster()
    cluster.entries |= {"a": None, "b": {0}}
    cluster.checker.bookie_back("b")
    cluster.entries["a"] = {0}
    violates("AllCommittedEntriesReachAckQuorum", lambda: cluster.checker.bookie_back("a"))
    cluster.entries["c"] = {0}
    violates("AllAckedEntriesAreReadable", lambda: cluster.checker.bookie_back("a"))


def test_an_ensemble_that_lacks_confirmed_entries_is_found() -> None:
    cluster = Cluster()
    cluster.entries |= {"d": set(), "b": set()}
    fragments = (Fragment(0, ("a", "b", "c")), Fragment(1, ("a", "b", "d")))
    violates("AllCommittedEntriesReachAckQuorum", lambda: cluster.store(replace(METADATA, fragments=fragments)))


def test_fragments_that_were_changed_are_found() -> None:
    cluster = Cluster()
    cluster.store(replace(METADATA, fragments=(Fragment(0, ("a", "b", "c")), Fragment(2, ("a", "b", "d")))))
    changed = replace(METADATA, fragments=(Fragment(0, ("a", "d", "c")), Fragment(2, ("a", "b", "d"))))
    violates("OnlyValidFragments", lambda: cluster.store(changed))
    violates("OnlyValidFragments", lambda: cluster.checker.metadata_changed(7, b"no metadata"))


def test_a_ledger_closed_below_what_was_confirmed_or_read_is_found() -> None:
    cluster = Cluster()
    violates("NoDivergenceBetweenClientAndMetaData", lambda: cluster.close(0, 7))
    cluster = Cluster()
    cluster.checker.lac_seen(cluster.history, -1, 2)
    violates("NothingAboveLacIsRead", lambda: cluster.close(1, 14))


def test_a_ledger_closed_with_another_length_or_twice_is_found() -> None:
    violates("NoDivergenceBetweenClientAndMetaData", lambda: Cluster().close(1, 15))
    cluster = Cluster()
    cluster.close(1, 14)
    violates("NoDivergenceBetweenClientAndMetaData", lambda: cluster.close(2, 21))
    violates("NoDivergenceBetweenClientAndMetaData", lambda: cluster.store(METADATA))


def test_a_length_that_could_not_be_learnt_may_be_wrong_but_only_where_the_recovery_ended() -> None:
    cluster = Cluster()
    cluster.checker.length_missed(7, 1)
    cluster.close(1, 0)
    cluster = Cluster()
    cluster.checker.length_missed(7, 1)
    violates("NoDivergenceBetweenClientAndMetaData", lambda: cluster.close(2, 14))
    violates("NoDivergenceBetweenClientAndMetaData", lambda: cluster.close(0, 0))


def test_a_recovery_that_leaves_an_ack_quorum_unfenced_is_found() -> None:
    cluster = Cluster()
    cluster.fences |= {"a"}
    violates("FencedWritersNeverConfirm", lambda: cluster.checker.fencing_ended(7, METADATA))
    cluster.entries["b"] = None
    cluster.checker.fencing_ended(7, METADATA)


def test_a_recovery_that_ends_before_an_entry_that_may_still_be_confirmed_is_found() -> None:
    cluster = Cluster()
    cluster.entries |= {"b": {0, 1}, "c": {0, 1}}
    cluster.fences |= {"a", "b", "c"}
    cluster.checker.entry_denied(7, 2, ("a", "b", "c"), 2)
    cluster.fences.remove("c")
    violates("FencedWritersNeverConfirm", lambda: cluster.checker.entry_denied(7, 2, ("a", "b", "c"), 2))
    cluster.history.recoveries = 2
    cluster.checker.entry_denied(7, 2, ("a", "b", "c"), 2)


def test_a_writer_that_goes_on_after_the_fence_is_found() -> None:
    cluster = Cluster()
    cluster.fences |= {"a", "b"}
    cluster.checker.fencing_ended(7, METADATA)
    cluster.checker.confirmed(cluster.history, 2, 2)  # it was under way
    cluster.history.payloads.append(b"entry 3")
    for entries in cluster.entries.values():
        assert entries is not None
        entries.add(3)
    violates("FencedWritersNeverConfirm", lambda: cluster.checker.confirmed(cluster.history, 3, 3))


def test_a_reader_that_sees_what_it_must_not_is_found() -> None:
    cluster = Cluster()
    checker = cluster.checker
    violates("LacIsMonotone", lambda: checker.lac_seen(cluster.history, 1, 0))
    violates("LacIsAtMostLap", lambda: checker.lac_seen(cluster.history, 1, 3))
    violates("NoOutOfOrderEntries", lambda: checker.entries_read(cluster.history, 0, [B]))
    violates("NoOutOfOrderEntries", lambda: checker.entries_read(cluster.history, 3, [C]))


def test_a_ledger_left_open_or_gone_in_the_end_is_found() -> None:
    cluster = Cluster()
    violates("Liveness", cluster.checker.check_final)
    cluster.checker.metadata_changed(7, None)
    violates("AllAckedEntriesAreReadable", cluster.checker.check_final)
    cluster.history.deleted = True
    cluster.checker.check_final()
