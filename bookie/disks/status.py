"""Status of a bookie, kept in each ledger directory so that a restart does not make a read-only bookie writable.

    <ledger directory>/current/BOOKIE_STATUS    1,READ_ONLY|READ_WRITE,<ms since 1970>,<true|false>\n

The last field says whether an operator set the mode. Without it, in files of older versions of the original, it counts
as true. The newest of all directories counts; a damaged one is ignored.
Source: BookKeeper's BookieStatus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import trio

from quire.service.log import get_logger
from quire.world.doors import Disk, World

log = get_logger(__name__)

STATUS_FILE: Final = "BOOKIE_STATUS"
RETRY_S: Final = 1.0
"""Seconds from a status that could be written to no directory to the next try."""
_VERSION: Final = "1"
_MODES: Final = {"READ_ONLY": True, "READ_WRITE": False}
_TRUTHS: Final = {"true": True, "false": False}
_SIZE_MAX: Final = 200


class BookieStatus(NamedTuple):
    """Mode of a bookie, and when it was taken. `manual`: an operator set it."""

    read_only: bool
    updated_ms: int
    manual: bool


def encode_status(status: BookieStatus) -> bytes:
    """
    >>> encode_status(BookieStatus(True, 1700000000000, False))
    b'1,READ_ONLY,1700000000000,false\\n'
    """
    mode = "READ_ONLY" if status.read_only else "READ_WRITE"
    return f"{_VERSION},{mode},{status.updated_ms},{str(status.manual).lower()}\n".encode()


def decode_status(data: bytes) -> BookieStatus | None:
    """Decode the content of a file; None if it is not a status."""
    if len(data) > _SIZE_MAX:
        return None
    version, *fields = data.decode("utf-8", "replace").partition("\n")[0].split(",")
    if version.strip() != _VERSION or len(fields) not in (2, 3):
        return None
    read_only = _MODES.get(fields[0])
    manual = _TRUTHS.get(fields[2].strip()) if len(fields) == 3 else True
    number = fields[1].strip()
    if read_only is None or manual is None or not (number.isascii() and number.isdigit()):
        return None
    return BookieStatus(read_only, int(number), manual)


def read_status(disk: Disk, folders: Sequence[str]) -> BookieStatus | None:
    """Return the newest status in these folders; None if there is none. Blocking."""
    found: list[BookieStatus] = []
    for folder in folders:
        path = f"{folder}/{STATUS_FILE}"
        try:
            status = decode_status(disk.read(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("status of the bookie cannot be read", file=path, reason=str(error))
            continue
        if status is None:
            log.warning("status of the bookie is damaged and ignored", file=path)
        else:
            found.append(status)
    return max(found, key=lambda status: status.updated_ms, default=None)


def write_status(disk: Disk, folders: Sequence[str], status: BookieStatus) -> str:
    """Store the status in as many folders as possible; return why it is in none, or "". Blocking."""
    failures: list[str] = []
    for folder in folders:
        try:
            disk.write_atomic(f"{folder}/{STATUS_FILE}", encode_status(status))
        except OSError as error:
            failures.append(str(error))
    return failures[0] if failures and len(failures) == len(folders) else ""


class KeptStatus:
    """Keeps the status of one bookie on its disks. `run` writes it when it changes, and `kept` waits for that."""

    def __init__(self, world: World, folders: Sequence[str], now: Callable[[], tuple[bool, bool]]) -> None:
        """`now` returns the present mode: whether it is read-only, and whether an operator made it so."""
        self._world = world
        self._folders = tuple(folders)
        self._now = now
        self._written: tuple[bool, bool] | None = None
        self._fails = False
        self._wake = trio.Event()
        self._passed = trio.Event()

    def began_as(self, status: BookieStatus | None) -> None:
        """Note what the disks say."""
        self._written = (status.read_only, status.manual) if status is not None else (False, False)

    def changed(self) -> None:
        """Write the mode soon, if it differs from what is written."""
        self._wake.set()

    async def kept(self) -> bool:
        """Wait for the next try to write the present mode; return whether it is on a disk."""
        for _ in range(2):  # (the first may be of an older mode)
            if self._now() == self._written:
                break
            passed = self._passed
            self._wake.set()
            await passed.wait()
        return self._now() == self._written

    async def run(self) -> None:
        """Write each change until cancelled."""
        while True:
            wanted = self._now()
            failure = "" if wanted == self._written else await self._write(wanted)
            self._passed.set()
            self._passed = trio.Event()
            with trio.move_on_after(RETRY_S if failure else float("inf")):
                await self._wake.wait()
            self._wake = trio.Event()

    async def _write(self, wanted: tuple[bool, bool]) -> str:
        status = BookieStatus(wanted[0], self._world.clock.wall_ms(), wanted[1])
        job = partial(write_status, self._world.disk, self._folders, status)
        failure = await self._world.offload.run(job, name="bookie status")
        if failure and not self._fails:
            log.warning("status of the bookie cannot be written, retrying", reason=failure)
        self._fails = bool(failure)
        if not failure:
            self._written = wanted
        return failure
