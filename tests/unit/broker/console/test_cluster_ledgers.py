"""Tables of ledgers, and the copies of each bookie, against counts of single entries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.console.cluster_ledgers import BookieShare, LedgerOwner, LedgerTable, owner_of, shares, stored
from broker.console.cluster_loss import Harm
from broker.console.cluster_rows import RowChoice, RowScan, row_json, shares_json
from quire.ledger.striping import Striping
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState


def closed(last: int, length: int, *fragments: Fragment, quorum: int = 2, topic: str = "a") -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=len(fragments[0].bookies),
        write_quorum=quorum,
        ack_quorum=quorum,
        fragments=fragments,
        state=LedgerState.CLOSED,
        last_entry_id=last,
        length=length,
        custom_metadata=(("pulsar/managed-ledger", f"t/n/persistent/{topic}".encode()),),
    )


@given(st.integers(1, 6), st.data(), st.integers(0, 40), st.integers(-1, 60))
def test_entries_of_a_member_are_counted_as_one_by_one(size: int, data: st.DataObject, first: int, more: int) -> None:
    quorum, index = data.draw(st.integers(1, size)), data.draw(st.integers(0, size - 1))
    striping, last = Striping(size, quorum), first + more
    expected = sum(striping.stores(index, entry) for entry in range(first, last + 1))
    assert stored(size, quorum, index, first, last) == expected


def test_a_row_is_what_was_added() -> None:
    table = LedgerTable()
    metadata = closed(9, 100, Fragment(0, ("a", "b")), Fragment(5, ("a", "c")))
    table.add(7, metadata)
    table.add(9, LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("c",)),)))
    row = table.row(0)
    assert (row.ledger_id, row.last, row.length, row.is_open) == (7, 9, 100, False)
    assert [(each.first, last) for each, last in row.spans()] == [(0, 4), (5, 9)]
    assert table.row(1).is_open
    assert table.bookies == ["a", "b", "c"]


def test_layouts_and_owners_are_shared() -> None:
    table = LedgerTable()
    for ledger_id in range(1000):
        table.add(ledger_id, closed(ledger_id, 5, Fragment(0, ("a", "b")), topic=f"t{ledger_id % 3}"))
    assert len(table._layouts) == 1
    assert len(table.owners) == 3


def test_shares_are_the_entries_and_bytes_of_each_bookie() -> None:
    table, into = LedgerTable(), dict[int, BookieShare]()
    table.add(1, closed(9, 1000, Fragment(0, ("a", "b", "c"))))
    table.add(2, closed(-1, 0, Fragment(0, ("a", "b", "c"))))
    table.add(3, LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("a",)),)))
    for first in range(3):
        shares(table, first, 1, into)
    found = {each["bookie"]: each for each in shares_json(table, into, {"a": "writable", "z": "gone"})}
    assert found["a"] | {"bookie": ""} == {
        "bookie": "",
        "state": "writable",
        "ledgers": 2,
        "open": 1,
        "fragments": 2,
        "entries": 7,
        "bytes": 700,
    }
    assert [found[each]["entries"] for each in "bc"] == [7, 6]
    assert found["z"]["ledgers"] == 0
    assert found["b"]["state"] == "unknown"


def test_owners_are_read_from_custom_metadata() -> None:
    cursor = (("pulsar/managed-ledger", b"t/n/persistent/a%2Fb"), ("pulsar/cursor", b"my%20sub"))
    assert owner_of(cursor) == LedgerOwner("cursor", "persistent://t/n/a/b", "my sub")
    assert owner_of((("pulsar/schemaId", b"t/n/x"),)) == LedgerOwner("schema", "t/n/x")
    assert owner_of((("pulsar/compactedTopic", b"persistent://t/n/x"),)) == LedgerOwner(
        "compacted", "persistent://t/n/x"
    )
    assert owner_of((("x", b"\xff"),)) == LedgerOwner("other", "")


def test_a_scan_finds_the_chosen_rows_in_steps_and_names_where_to_go_on() -> None:
    table = LedgerTable()
    for ledger_id in range(100):
        members = ("a", "b") if ledger_id % 10 else ("c", "b")
        table.add(ledger_id, closed(5, 10, Fragment(0, members)))
    live = frozenset({table.number("a") or 0, table.number("b") or 0})
    scan = RowScan(table, RowChoice(harm=Harm.BELOW_WRITE_QUORUM), live, 0, 5)
    while scan.step(7):
        pass
    assert [row.ledger_id for row, _ in scan.found] == [0, 10, 20, 30, 40]
    assert scan.next_place == 41
    rest = RowScan(table, RowChoice(bookie=table.number("c"), owner="n/a"), live, 41, 100)
    assert not rest.step(1000)
    assert [row.ledger_id for row, _ in rest.found] == [50, 60, 70, 80, 90]
    assert rest.next_place is None
    shown = row_json(*(rest.found[0][0], table, rest.found[0][1]), marked={50})
    assert (shown["harm"], shown["marked"], shown["fragments"][0]["bookies"]) == ("BELOW_ACK_QUORUM", True, ["c", "b"])
