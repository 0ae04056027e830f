"""Each checker of clusters reports the violation that it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from managed_ledger.ledger_list import LedgerInfo, LedgerList
from quire.metadata import ledger_codec
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from simulation.cluster.checkers import ClusterChecker, Copy, check_owners
from simulation.common.checkers import ViolationError

TOPIC = "public/default/persistent/t"
METADATA = LedgerMetadata(
    ensemble_size=2, write_quorum=2, ack_quorum=1, fragments=(Fragment(0, ("a", "b")), Fragment(1, ("a", "c")))
)
CLOSED = replace(METADATA, state=LedgerState.CLOSED, last_entry_id=2, length=21)
ENTRIES = [b"entry 0", b"entry 1", b"entry 2"]
OWNER, NEXT = ("br0", 1), ("br1", 1)


class Cluster:
    """Bookies with the entries that they have of one ledger. It has three entries, two of them confirmed."""

    def __init__(self) -> None:
        self.entries: dict[str, set[int] | None] = {"a": {0, 1, 2}, "b": {0}, "c": {1, 2}, "d": set()}
        self.checker = ClusterChecker(self.has, lambda bookie_id, ledger_id: True)
        self.store(METADATA)
        self.history = self.checker.opened(7, OWNER)
        self.checker.appended(self.history, 0, ENTRIES)
        self.checker.confirmed(self.history, 0, 1)
        self.checker.list_changed(TOPIC, LedgerList(ledgers=(LedgerInfo(ledger_id=7),)), OWNER)

    def has(self, bookie_id: str, ledger_id: int, entry_id: int) -> bool | None:
        entries = self.entries[bookie_id]
        return None if entries is None else entry_id in entries

    def store(self, metadata: LedgerMetadata) -> None:
        self.checker.metadata_changed(7, ledger_codec.encode(metadata))

    def list(self, *ledgers: tuple[int, int], deleting: tuple[int, ...] = (), writer: tuple[str, int] = OWNER) -> None:
        infos = tuple(LedgerInfo(ledger_id=ledger_id, entries=entries) for ledger_id, entries in ledgers)
        self.checker.list_changed(TOPIC, LedgerList(ledgers=infos, deleting=deleting), writer)


def violates(name: str, do: Callable[[], object]) -> None:
    with pytest.raises(ViolationError) as caught:
        do()
    assert caught.value.name == name


def test_a_history_without_a_mistake_passes() -> None:
    cluster = Cluster()
    cluster.checker.confirmed(cluster.history, 2, 2)
    cluster.store(CLOSED)
    cluster.list((7, 3), writer=NEXT)
    cluster.entries["d"] = {1, 2}
    cluster.store(replace(CLOSED, fragments=(CLOSED.fragments[0], Fragment(1, ("a", "d")))))
    assert cluster.checker.repaired == 1
    cluster.checker.check_leaks(())
    assert cluster.checker.missing() is None
    assert cluster.checker.check_copies(lambda copy: ENTRIES[copy.entry_id]) == 6


def test_an_entry_that_an_owner_sent_after_another_had_the_topic_must_not_be_confirmed() -> None:
    cluster = Cluster()
    cluster.list((7, 0), writer=NEXT)
    cluster.checker.confirmed(cluster.history, 2, 2)  # sent before
    cluster.checker.appended(cluster.history, 3, [b"late"])
    cluster.entries["a"] = {0, 1, 2, 3}
    violates("FencedOwnersNeverConfirm", lambda: cluster.checker.confirmed(cluster.history, 3, 3))


def test_an_owner_that_stores_its_list_again_goes_on() -> None:
    cluster = Cluster()
    cluster.list((7, 0), deleting=(8,))
    cluster.checker.appended(cluster.history, 3, [b"more"])
    cluster.entries["a"] = {0, 1, 2, 3}
    cluster.checker.confirmed(cluster.history, 2, 3)


def test_what_is_appended_follows_what_was() -> None:
    cluster = Cluster()
    violates("NoOutOfOrderEntries", lambda: cluster.checker.appended(cluster.history, 5, [b"x"]))


@pytest.mark.parametrize(
    "fragments",
    [
        (Fragment(0, ("a", "d")), Fragment(1, ("a", "c"))),
        (Fragment(0, ("a", "b")), Fragment(1, ("d", "c"))),
    ],
)
def test_who_takes_a_members_place_must_have_every_entry_of_it(fragments: tuple[Fragment, ...]) -> None:
    cluster = Cluster()
    cluster.checker.confirmed(cluster.history, 2, 2)
    cluster.store(CLOSED)
    cluster.entries["d"] = {1}
    violates("RepairedFragmentsAreWhole", lambda: cluster.store(replace(CLOSED, fragments=fragments)))


def test_the_last_fragment_of_an_open_ledger_may_change_its_members() -> None:
    cluster = Cluster()
    cluster.entries["d"] = {1}
    cluster.store(replace(METADATA, fragments=(METADATA.fragments[0], Fragment(1, ("d", "c")))))


@pytest.mark.parametrize("fragments", [CLOSED.fragments[:1], (*CLOSED.fragments, Fragment(2, ("a", "c")))])
def test_a_closed_ledger_keeps_its_fragments(fragments: tuple[Fragment, ...]) -> None:
    cluster = Cluster()
    cluster.checker.confirmed(cluster.history, 2, 2)
    cluster.store(CLOSED)
    violates("OnlyValidFragments", lambda: cluster.store(replace(CLOSED, fragments=fragments)))


@pytest.mark.parametrize("entries", [2, 4])
def test_a_list_must_tell_the_end_that_the_ledger_has(entries: int) -> None:
    cluster = Cluster()
    cluster.checker.confirmed(cluster.history, 2, 2)
    cluster.store(CLOSED)
    violates("ListsAgreeWithLedgers", lambda: cluster.list((7, entries)))


def test_a_list_must_not_tell_an_end_of_an_open_ledger_or_of_none() -> None:
    cluster = Cluster()
    violates("ListsAgreeWithLedgers", lambda: cluster.list((7, 2)))
    violates("ListsAgreeWithLedgers", lambda: cluster.list((6, 1), (7, 0)))


def test_a_ledger_that_nobody_names_is_a_leak() -> None:
    cluster = Cluster()
    cluster.list(deleting=(7,))
    cluster.checker.check_leaks(())
    cluster.list()
    cluster.checker.check_leaks((7,))
    violates("LedgersNeverLeak", lambda: cluster.checker.check_leaks(()))


def test_a_ledger_of_a_list_must_be_there() -> None:
    cluster = Cluster()
    cluster.checker.metadata_changed(7, None)
    violates("ListsAgreeWithLedgers", lambda: cluster.checker.check_leaks(()))


def test_a_copy_is_missing_if_its_bookie_lacks_it_or_is_lost() -> None:
    cluster = Cluster()
    cluster.checker.confirmed(cluster.history, 2, 2)
    cluster.store(CLOSED)
    assert cluster.checker.missing() is None
    cluster.entries["c"] = {1}
    assert cluster.checker.missing() == Copy(7, 2, "c")
    cluster.entries["b"] = None
    assert cluster.checker.missing() == Copy(7, 0, "b")


@pytest.mark.parametrize("found", [b"entry 9", "the digest is wrong"])
def test_a_copy_that_is_not_what_was_appended_is_found(found: bytes | str) -> None:
    cluster = Cluster()
    cluster.checker.confirmed(cluster.history, 2, 2)
    cluster.store(CLOSED)

    def read(copy: Copy) -> bytes | str:
        return found if copy == Copy(7, 1, "c") else ENTRIES[copy.entry_id]

    violates("ReplicasAreEqual", lambda: cluster.checker.check_copies(read))


def test_a_bundle_has_one_owner_the_one_that_its_node_names() -> None:
    check_owners({"br0": ["x", "y"], "br1": []}, {"x": "br0", "y": "br0"})
    violates("OneOwnerPerBundle", lambda: check_owners({"br0": ["x"], "br1": ["x"]}, {"x": "br0"}))
    violates("OneOwnerPerBundle", lambda: check_owners({"br0": ["x"]}, {"x": "br1"}))
    violates("OneOwnerPerBundle", lambda: check_owners({"br0": ["x"]}, {}))
    violates("OneOwnerPerBundle", lambda: check_owners({"br0": []}, {"x": "br0"}))
