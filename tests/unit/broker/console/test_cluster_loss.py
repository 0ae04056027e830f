"""Losses of bookies, as text: ledgers on bookies, and what is left without one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from broker.console.cluster_ledgers import LedgerTable
from broker.console.cluster_loss import Harm, Loss, Room, loss_json, verdict_of, write_sets
from quire.ledger.placement import PlacementConfig
from quire.ledger.placement.policy import Cluster
from quire.ledger.placement.rack_aware import RackAwarePolicy
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from tests.support.datadriven import Line, check
from tests.unit.ledger.placement.clusters import always


def metadata_of(line: Line) -> LedgerMetadata:
    """Return the metadata of `ledger 3/2/2 0=a,b,c 10=a,b,d last=19 length=400`; without `last` it is open."""
    size, quorum, acks = (int(each) for each in line.word().split("/"))
    fragments = []
    for each in line.option("on").split(";"):
        first, _, members = each.partition(":")
        fragments.append(Fragment(int(first), tuple(members.split(","))))
    last = line.option_number("last", -2)
    closed = last != -2
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum=quorum,
        ack_quorum=acks,
        fragments=tuple(fragments),
        state=LedgerState.CLOSED if closed else LedgerState.OPEN,
        last_entry_id=last if closed else -1,
        length=line.option_number("length", 0),
        custom_metadata=(("pulsar/managed-ledger", line.option("of", "t/n/persistent/x").encode()),),
    )


def transcribed(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return the answers about one cluster: `cluster up=a,b,c racks=/r1,/r1,/r2`, ledgers, and `lose a`."""
    if command.name != "cluster":
        raise command.unknown()
    up = [each for each in command.option("up").split(",") if each]
    racks = dict(zip(up, command.option("racks", ",".join("/r" for _ in up)).split(","), strict=True))
    readonly = frozenset(each for each in command.option("readonly", "").split(",") if each)
    config = PlacementConfig(
        enforce_min_racks_per_write_quorum={"yes": True, "no": False}[command.option("enforce", "no")],
    )
    table, found = LedgerTable(), list[str]()
    for step in steps:
        if step.name == "ledger":
            table.add(len(table), metadata_of(step))
            continue
        if step.name != "lose":
            raise step.unknown()
        bookie = step.word()
        number = table.number(bookie)
        before = frozenset(each for each, name in enumerate(table.bookies) if name in up)
        loss = Loss(-1 if number is None else number, before - {number}, before)
        for row in table.rows():
            loss.add(row)
        survivors = frozenset(up) - {bookie}
        cluster = Cluster(writable=tuple(sorted(survivors - readonly)), read_only=readonly, locations=racks)
        policy, room = RackAwarePolicy(config, always(cluster), random.Random(1)), Room()
        for key, count in loss.ensembles.items():
            room.examine(key, count, table.bookies, survivors, policy)
        room.examine_new(policy)
        then, now = ("/".join(str(by[harm]) for harm in list(Harm)[1:]) for by in (loss.by_harm, loss.by_harm_now))
        found.append(
            f"lose {bookie}: {verdict_of(loss, room)} affected={loss.affected} open={loss.open_ledgers} then={then}"
            f" now={now} copy={loss.copy_entries}:{loss.copy_bytes} room={room.fragments - room.without_room}"
            f"/{loss.fragments} soft={room.soft} violating={room.violating}+{room.violating_now}"
            f" new={sorted(room.quorums_short)} owners={len(loss.owners)}"
        )
    return found


def test_cases() -> None:
    check(Path(__file__).parent / "testdata" / "loss.txt", transcribed)


def test_each_write_set_with_an_entry_is_examined_once() -> None:
    assert list(write_sets(5, 2, 3, 4)) == [[3, 4], [4, 0]]
    assert len(list(write_sets(5, 2, 0, 10**9))) == 5


def test_an_answer_names_how_many_ledgers_it_is_about() -> None:
    table = LedgerTable()
    ledger = LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(0, ("a",)),),
        state=LedgerState.CLOSED,
        last_entry_id=0,
        length=5,
    )
    table.add(1, ledger)
    table.add(2, replace(ledger, last_entry_id=-1, length=0))
    loss = Loss(0, frozenset(), frozenset({0}))
    loss.add(table.row(0))
    found = loss_json(loss, Room(), table, 2)
    assert (found["examined"], found["total"], found["affected"]) == (1, 2, 1)
    assert found["ledgers"] == [{"ledger": 1, "harm": "UNREADABLE"}]
    assert found["then"] == {"belowWriteQuorum": 1, "belowAckQuorum": 1, "unreadable": 1}
    loss.add(table.row(1))
    assert (loss.examined, loss.affected) == (2, 1), "an empty ledger has no copies to lose"
