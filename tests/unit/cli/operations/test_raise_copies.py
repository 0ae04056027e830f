"""raise-copies: closed ledgers get copies on further bookies, byte for byte; others keep theirs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, cast

import pytest
import trio

from autorecovery.copying.replicator import Replicator
from autorecovery.ledger_checker import LedgerChecker
from quire.cli.operations import raise_copies as module
from quire.cli.operations.context import OperationContext
from quire.cli.operations.raise_copies import raise_copies
from quire.cli.shell.errors import ShellError
from quire.cli.shell.output import Output
from quire.ledger.client import LedgerClient
from quire.ledger.errors import FragmentChangedError
from quire.ledger.metadata_updates import add_members
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from tests.support.waiting import until
from tests.unit.autorecovery.live import all_copies_are_good, client_of, damage, write
from tests.unit.cli.shell.build import LiveCluster, with_bookies
from tests.unit.ledger import fake_bookie

COUNT = 20
CLOSED = LedgerMetadata(
    ensemble_size=1,
    write_quorum=1,
    ack_quorum=1,
    fragments=(Fragment(0, ("b1",)), Fragment(5, ("b2",))),
    state=LedgerState.CLOSED,
    last_entry_id=9,
    length=100,
)
WIDE = {0: ("b1", "b2", "b3"), 5: ("b2", "b1", "b3")}


async def a_ledger(
    client: LedgerClient, *, size: int = 1, quorum: int = 1, close: bool = True, entries: int = COUNT
) -> int:
    return await write(client, entries, quorums=(size, quorum, quorum), close=close)


def operation_on(cluster: LiveCluster, out: io.StringIO, *, dry_run: bool = False) -> OperationContext:
    shell = cluster.shell(Output(out, out, as_json=True))
    return OperationContext(shell=shell, store=cluster.store(), dry_run=dry_run, timeout_s=60.0)


@pytest.mark.seeded
async def test_closed_ledgers_get_more_copies_and_all_of_them_are_good() -> None:
    async with with_bookies(count=3) as cluster, client_of(cluster) as client:
        one, two, empty = (
            await a_ledger(client),
            await a_ledger(client, size=2, quorum=2),
            await a_ledger(client, entries=0),
        )
        out = io.StringIO()
        assert await raise_copies(operation_on(cluster, out, dry_run=True), 3, 2) == 0
        assert (await client.read_metadata(one)).write_quorum == 1, "a dry run changes nothing"
        assert await raise_copies(operation_on(cluster, out), 3, 2) == 0
        for ledger_id in (one, two, empty):
            metadata = await client.read_metadata(ledger_id)
            assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 3, 2)
            assert all(set(each.bookies) == {"b1", "b2", "b3"} for each in metadata.fragments)
        for ledger_id in (one, two):
            await all_copies_are_good(cluster, client, ledger_id, COUNT)
        again = io.StringIO()
        assert await raise_copies(operation_on(cluster, again), 3, 2) == 0
        assert json.loads(again.getvalue().splitlines()[-1])["raised"] == 0


@pytest.mark.seeded
async def test_a_run_that_is_cut_anywhere_is_repeated_and_no_ledger_names_a_bookie_without_its_copy() -> None:
    """It is cut before and after the copies of each fragment, and each write of metadata."""
    async with with_bookies(count=3) as cluster, client_of(cluster) as client:
        cut_at = whole = 0
        while not whole:
            ledger_ids = [await a_ledger(client, entries=3) for _ in range(2)]
            with trio.CancelScope() as scope:
                steps = count(1)

                def cut(scope: trio.CancelScope = scope, steps: Iterator[int] = steps, number: int = cut_at) -> None:
                    if next(steps) > number:
                        scope.cancel()

                with steps_of(cut):
                    await raise_copies(operation_on(cluster, io.StringIO()), 3, 2)
                whole = cut_at
            for ledger_id in ledger_ids:
                if (await client.read_metadata(ledger_id)).write_quorum == 3:
                    await all_copies_are_good(cluster, client, ledger_id, 3)
            assert await raise_copies(operation_on(cluster, io.StringIO()), 3, 2) == 0
            for ledger_id in ledger_ids:
                assert (await client.read_metadata(ledger_id)).write_quorum == 3
                await all_copies_are_good(cluster, client, ledger_id, 3)
            cut_at += 1
        assert whole >= 4, "there were several places"


@contextmanager
def steps_of(step: Callable[[], None]) -> Iterator[None]:
    """Call `step` before each fill of a fragment and each change of a ledger's members."""
    fill, add = Replicator.fill, LedgerClient.add_members

    async def filled(self: Replicator, *given: Any) -> Any:
        step()
        found = await fill(self, *given)
        step()
        return found

    async def added(self: LedgerClient, *given: Any, **named: Any) -> Any:
        step()
        found = await add(self, *given, **named)
        step()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replicator, "fill", filled)
        patch.setattr(LedgerClient, "add_members", added)
        yield


@pytest.mark.seeded
async def test_a_run_that_dies_after_its_metadata_write_is_verified_by_the_next_one() -> None:
    """The copies that it named were never read, and one of them is damaged."""
    async with with_bookies(count=3) as cluster, client_of(cluster) as client:
        ledger_id = await a_ledger(client, size=2, quorum=2)
        with trio.CancelScope() as scope, pytest.MonkeyPatch.context() as patch:

            async def dies(*_: Any, **__: Any) -> None:
                scope.cancel()
                await trio.lowlevel.checkpoint()

            patch.setattr(module, "verify_replicas", dies)
            await raise_copies(operation_on(cluster, io.StringIO()), 3, 2)
        assert (await client.read_metadata(ledger_id)).write_quorum == 3
        await damage(client, ledger_id, "b3", 7)
        for _ in range(2):  # as long as it is bad
            out = io.StringIO()
            assert await raise_copies(operation_on(cluster, out), 3, 2) == 1
            assert "1 ledgers of a run that was cut are verified, too" in out.getvalue()
            assert json.loads(out.getvalue().splitlines()[-1])["raised"] == 0
        metadata = await client.read_metadata(ledger_id)
        copies = client.copies(ledger_id, metadata)
        good, _ = await copies.read("b1", [7])
        await copies.write("b3", [7], good)
        assert await raise_copies(operation_on(cluster, io.StringIO()), 3, 2) == 0
        out = io.StringIO()
        assert await raise_copies(operation_on(cluster, out), 3, 2) == 0
        assert "cut" not in out.getvalue()


@pytest.mark.seeded
@pytest.mark.expect_error("no room", "journal group not written")
async def test_a_bookie_with_a_full_disk_loses_nothing_and_a_repeat_works() -> None:
    async with with_bookies(count=3) as cluster, client_of(cluster) as client:
        written = [await fake_bookie.write(client, 100, quorums=(1, 1, 1), on="b1", size=20_000) for _ in range(3)]
        folders = cast(Any, cluster.world.disk)._image.folders
        folders.fill("/b3")
        out = io.StringIO()
        assert await raise_copies(operation_on(cluster, out), 3, 2) == 1
        lines = out.getvalue().splitlines()
        assert [line for line in lines if line.startswith("ledger ")] == [
            f"ledger {ledger_id}: bookie b3 answered IO to the add of {ledger_id}:0; run raise-copies again"
            for ledger_id, _ in written
        ]
        assert [(await client.read_metadata(ledger_id)).write_quorum for ledger_id, _ in written] == [1, 1, 1]
        text = io.StringIO()
        operation = replace(operation_on(cluster, text), shell=cluster.shell(Output(text, text)))
        assert await raise_copies(operation, 3, 2) == 1
        assert text.getvalue().splitlines()[-1] == "0 ledgers have 3 copies now; 3 have not: run raise-copies again"
        folders.mend("/b3")
        await until(lambda: not cluster.bookies["b3"].read_only)
        assert await raise_copies(operation_on(cluster, io.StringIO()), 3, 2) == 0
        checker = LedgerChecker(client, rng=cluster.world.rng)
        for ledger_id, payloads in written:
            metadata = await client.read_metadata(ledger_id)
            assert (metadata.write_quorum, await checker.check(ledger_id, metadata, percentage=100)) == (3, [])
            reader = await client.open(ledger_id, password=b"secret", recover=False)
            assert list(map(bytes, await reader.read(0, 99))) == payloads


@pytest.mark.seeded
async def test_open_and_striped_ledgers_keep_theirs_and_the_exit_code_tells() -> None:
    async with with_bookies(count=3) as cluster, client_of(cluster) as client:
        left_open, striped = await a_ledger(client, close=False), await a_ledger(client, size=3, quorum=2)
        out = io.StringIO()
        assert await raise_copies(operation_on(cluster, out), 3, 2) == 1
        assert "1 open ledgers have fewer than 3 copies: unload their topics" in out.getvalue()
        assert "1 striped ledgers were left as they are" in out.getvalue()
        assert (await client.read_metadata(left_open)).write_quorum == 1
        assert (await client.read_metadata(striped)).write_quorum == 2


@pytest.mark.seeded
async def test_more_copies_than_bookies_and_quorums_that_cannot_be_are_refused() -> None:
    async with with_bookies(count=2) as cluster:
        operation = operation_on(cluster, io.StringIO())
        for copies, ack_quorum, text in ((3, 2, "2 are running"), (1, 1, "at least 2"), (2, 3, "--ack-quorum: 1 to 2")):
            with pytest.raises(ShellError, match=text):
                await raise_copies(operation, copies, ack_quorum)


def test_the_rule_names_all_members_once_and_refuses_a_ledger_that_has_changed() -> None:
    wide = add_members(CLOSED, CLOSED, WIDE, 2)
    assert wide is not None
    assert (wide.ensemble_size, wide.write_quorum, wide.ack_quorum, wide.last_entry_id) == (3, 3, 2, 9)
    assert add_members(wide, CLOSED, WIDE, 2) is None
    for changed in (
        replace(CLOSED, fragments=(Fragment(0, ("b4",)), Fragment(5, ("b2",)))),
        replace(CLOSED, state=LedgerState.OPEN, last_entry_id=-1, length=0),
    ):
        with pytest.raises(FragmentChangedError):
            add_members(changed, CLOSED, WIDE, 2)
