"""A single bookie: ledgers of several writers, fences, explicit LACs, a ledger deleted while fenced, and the requests
for them after the damage.

The metadata store of the cluster is not damaged: each case has a new one that has the bookie's cookie.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from quire.cli.doctor import examine_bookie
from quire.metadata.bookies import Cookie, write_cookie
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.process import exit_code
from quire.service import log
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import DigestMismatchError
from quire.wire.bookkeeper.v2 import Rc
from quire.world.damage import Finding
from quire.world.real import real_world
from quire.world.real_disk import RealDisk
from quire.world.real_look import look_into
from quire.world.unwrap import leaves
from tests.support.damage.judging import answer, dropped_tail, refused
from tests.support.damage.places import Case, Stop
from tests.support.damage.verdicts import Verdict
from tests.unit.bookie.build import DIGEST, Client, add_frames, entry

_INSTANCE: Final = "00000000-0000-0000-0000-000000000001"
_LEDGERS: Final = (3, 4, 5, 6)
_PER_LEDGER: Final = 12
_DELETED: Final = 900
_WAIT_S: Final = 10.0


def incarnations(stop: Stop) -> int:
    return 1 if stop is Stop.UNFLUSHED else 2


def _payload(ledger_id: int, entry_id: int) -> bytes:
    return b"%d:%d " % (ledger_id, entry_id) + b"p" * (2500 if entry_id % 5 == 0 else 120)


def _config(data: Path, stop: Stop) -> BookieConfig:
    return BookieConfig(
        bookie_id="bookie:1",
        journal_directories=(str(data / "journal"),),
        ledger_directories=(str(data / "ledgers"),),
        root=str(data),
        journal_prealloc_mb=1,
        disk_reserve_mb=0,  # (zeros that nothing reads would be copied for each case)
        flush_interval_ms=3_600_000,
        entry_log_size_max=32 << 10,
        read_workers=2,
        urgent_workers=1,
    )


@asynccontextmanager
async def _opened(data: Path, stop: Stop, *, known: bool) -> AsyncGenerator[Bookie]:
    world = real_world(1)
    store = MemoryStore(MemoryTree())
    await initialize_layout(store, rng=world.rng)
    await store.put("/ledgers/INSTANCEID", _INSTANCE.encode(), -1)
    config = _config(data, stop)
    if known:
        cookie = Cookie(
            bookie_id=config.id,
            journal_directories=("journal",),
            ledger_directories=("ledgers",),
            index_directories=None,
            instance_id=_INSTANCE,
        )
        await write_cookie(store, cookie, None, root="/ledgers")
    async with open_bookie(world, config, store) as bookie:
        yield bookie


async def _add(client: Client, ledger_id: int, first: int, count: int) -> None:
    for number in range(first, first + count):
        (response,) = await client.ask(add_frames(ledger_id, number, 1, _payload(ledger_id, number)))
        assert isinstance(response, v2.AddAcks), response
        assert response.rc == Rc.OK, response


def live(data: Path, stop: Stop, number: int, before: dict[str, Any]) -> dict[str, Any]:
    """Run one incarnation; return the acknowledged data at its end."""
    log.configure("info")
    done: dict[str, Any] = {"entries": dict(before.get("entries", {})), "fenced": list(before.get("fenced", []))}

    async def main() -> None:
        async with _opened(data, stop, known=number > 0) as bookie:
            client = Client(bookie)
            for ledger_id in _LEDGERS[number : 2 + number * 2]:
                first = done["entries"].get(str(ledger_id), 0)
                await _add(client, ledger_id, first, _PER_LEDGER)
                done["entries"][str(ledger_id)] = first + _PER_LEDGER
            if number == 0:
                await client.fence(_LEDGERS[0])
                done["entries"][str(_LEDGERS[0])] = _PER_LEDGER
                done["fenced"].append(_LEDGERS[0])
            if stop is Stop.UNFLUSHED:
                await _end()
            await bookie.checkpoint()
            if number == 0:
                await _add(client, _DELETED, 0, 3)
                await client.fence(_DELETED)
                await bookie.storage.of(0).delete_ledgers([_DELETED])
                await (
                    bookie.checkpoint()
                )  # else the replay after the kill brings it back, and nothing asks for its entries
                done["fenced"].append(_DELETED)
            if stop is Stop.KILLED or number == 0:
                for ledger_id in _LEDGERS[1:3]:
                    first = done["entries"].get(str(ledger_id), 0)
                    await _add(client, ledger_id, first, _PER_LEDGER // 2)
                    done["entries"][str(ledger_id)] = first + _PER_LEDGER // 2
                if stop is Stop.KILLED and number == 1:
                    await client.fence(_LEDGERS[1])
                    done["fenced"].append(_LEDGERS[1])
            if stop is not Stop.CLEAN or number == 0:
                await _end()

    async def _end() -> None:
        # As a kill: nothing that is open is closed. What `_forked` reads is sent by it when this returns.
        raise _KilledError

    try:
        trio.run(main)
    except BaseException as error:
        if not any(isinstance(leaf, _KilledError) for leaf in leaves(error)):
            raise
    return done


class _KilledError(Exception):
    pass


def look(data: Path, log_path: Path, acknowledged: dict[str, Any], case: Case) -> dict[str, str]:
    """Start the bookie on the damaged copy and request all acknowledged data."""
    log.configure("info")
    found: list[dict[str, str]] = []

    async def main() -> None:
        with trio.fail_after(_WAIT_S * 4):
            async with _opened(data, case.stop, known=True) as bookie:
                found.append(await _ask(bookie, acknowledged, log_path))
                raise _KilledError

    try:
        trio.run(main)
    except BaseException as error:
        if any(isinstance(leaf, _KilledError) for leaf in leaves(error)):
            return found[0]
        if exit_code(error) is None:
            raise
        return refused(case, "; ".join(map(str, leaves(error))))
    raise AssertionError("it ends by being killed")


def examine(data: Path, stop: Stop) -> list[Finding]:
    """Return the damage that `quire doctor` finds."""
    config = _config(data, stop)
    return examine_bookie(RealDisk(), look_into, config, lambda what, count: None).damaged


def _is_sealed(ledger_id: int, entry_id: int, data: Buffer) -> bool:
    """Return whether a reader would take this for the entry."""
    try:
        DIGEST.open(ledger_id, entry_id, memoryview(data))
    except DigestMismatchError:
        return False
    return True


async def _ask(bookie: Bookie, acknowledged: dict[str, Any], log_path: Path) -> dict[str, str]:
    client = Client(bookie)
    missing: list[str] = []
    errors: list[str] = []
    for ledger, count in acknowledged["entries"].items():
        ledger_id = int(ledger)
        for entry_id in [*range(count), -1]:
            response = await client.read(ledger_id, entry_id)
            wanted = entry_id if entry_id >= 0 else count - 1
            if response.rc == Rc.OK:
                if bytes(response.entry) != entry(ledger_id, wanted, _payload(ledger_id, wanted)):
                    if entry_id == -1:
                        missing.append(f"{ledger_id}: another last entry")
                        continue
                    if _is_sealed(ledger_id, wanted, response.entry):
                        return answer(Verdict.WRONG, f"entry {ledger_id}:{entry_id} has other bytes")
                    errors.append(f"{ledger_id}:{entry_id} other bytes, which its digest shows to the reader")
            elif response.rc in (Rc.NO_ENTRY, Rc.NO_LEDGER):
                missing.append(f"{ledger_id}:{entry_id} {Rc(response.rc).name}")
            else:
                errors.append(f"{ledger_id}:{entry_id} {Rc(response.rc).name}")
    for ledger_id in acknowledged["fenced"]:
        added = await client.add(ledger_id, 500)
        if isinstance(added, v2.AddAcks) and added.rc == Rc.OK:
            missing.append(f"the fence of {ledger_id}")
    if missing:
        tail = dropped_tail(await trio.Path(log_path).read_text())
        return answer(Verdict.TAIL if tail else Verdict.SILENT, f"{len(missing)}: {missing[:4]} {tail}")
    if errors:
        return answer(Verdict.ERROR, f"{len(errors)}: {errors[:4]}")
    return answer(Verdict.RIGHT, "")
