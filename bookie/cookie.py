"""Cookies: they identify a bookie's folders, so that a wiped, swapped or unmounted disk is noticed.

Each folder of a bookie carries a cookie, and the cluster stores a copy.

    no copy in the cluster    every folder must be empty: this is a new bookie; the folders are stamped, then the
                              cluster stores a copy
    a copy in the cluster     every folder must carry the same cookie; a folder without one was wiped or is not mounted,
                              and a bookie serving it would answer "no such entry" for entries it has acknowledged

Source: BookKeeper's LegacyCookieValidation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bookie.errors import CookieMismatchError
from bookie.interleaved.index_files import has_index_files
from quire.metadata.bookies import Cookie, decode_cookie, encode_cookie, read_cookie, write_cookie
from quire.metadata.errors import MetadataError, NodeExistsError
from quire.metadata.store import MetadataStore
from quire.world.doors import Disk, World

VERSION_FILE: Final = "VERSION"
LIMBO_PENDING_FILE: Final = "limboPending"
"""Note that ledgers are to be put into limbo: see limbo/losses.py."""


@dataclass(frozen=True, slots=True)
class Found:
    """Content of a folder: its cookie, if any, and whether it holds anything else."""

    cookie: Cookie | None
    has_data: bool


class Losing(Protocol):
    """The part of limbo.losses that the check of cookies uses."""

    lacking: tuple[str, ...]
    """Set by the check: folders without a cookie."""

    async def may_lack(self) -> bool:
        """Return whether folders without a cookie are used again, after what they held is declared lost."""

    async def returns(self) -> bool:
        """Return whether a bookie without any cookie has lost it: then its folders are stamped later."""


def must_stamp(expected: Cookie, stored: Cookie | None, found: Mapping[str, Found], *, may_lack: bool = False) -> bool:
    """Decide whether this is a new bookie (True) or a known one (False). Pure.

    `stored` is the cluster's copy, `found` what each folder has. CookieMismatchError says what is wrong and what to do.
    With `may_lack`, folders of a known bookie may lack their cookie.
    """
    if stored is not None:
        _same(expected, stored, "the cluster")
        for folder, there in found.items():
            if there.cookie is None and may_lack:
                continue
            if there.cookie is None:
                raise CookieMismatchError(_without_cookie(expected.bookie_id, folder, has_data=there.has_data))
            _same(expected, there.cookie, f"{folder}/{VERSION_FILE}")
        return False
    for folder, there in found.items():
        if there.cookie is not None:
            _same(expected, there.cookie, f"{folder}/{VERSION_FILE}")
        if there.has_data:
            raise CookieMismatchError(
                f"{folder} holds data, but the cluster does not know bookie {expected.bookie_id}. Name the right "
                "metadata store; or give the bookie an empty folder"
            )
    return True


def _without_cookie(bookie_id: str, folder: str, *, has_data: bool) -> str:
    if has_data:
        return (
            f"{folder}/{VERSION_FILE} is missing, but the folder holds data, and the cluster knows bookie {bookie_id}. "
            "Mount the right disk; or, if the file alone was lost, copy it from the bookie's other folder, "
            "which has the same one"
        )
    return (
        f"{folder} is empty: it was wiped, or is not mounted, but the cluster knows bookie {bookie_id}. "
        f"Mount the right disk; or, if its data is lost, rebuild it: {rebuild_command(bookie_id)}; or start it with "
        "dataIntegrityChecking=true and dataIntegrityStampMissingCookies=true"
    )


def rebuild_command(bookie_id: str) -> str:
    """Return the command that safely gives a bookie of a cluster empty folders.

    A bookie whose folders and cookie were deleted by hand denies entries it has acknowledged, and a ledger may be
    closed without them.
    """
    return f"`scripts/replace-disk {bookie_id} --conf bk_server.conf`"


def _same(expected: Cookie, other: Cookie, whose: str) -> None:
    for name in ("bookie_id", "instance_id", "journal_directories", "ledger_directories", "index_directories"):
        mine, theirs = getattr(expected, name), getattr(other, name)
        if mine != theirs and not (name == "instance_id" and not theirs):
            raise CookieMismatchError(
                f"the cookie of {whose} is for another bookie: its {name} is {theirs!r}, ours is {mine!r}. Start with "
                "the configuration the folders were made with; if the file is damaged, "
                f"copy {VERSION_FILE} from the bookie's other folder"
            )


def _find(disk: Disk, folder: str) -> Found:
    """Read a folder's cookie. Temporary files left by a crash, and the note of a loss, are no data. Blocking."""
    disk.make_dirs(folder)
    names = [name for name in disk.names(folder) if not name.endswith(".tmp") and name != LIMBO_PENDING_FILE]
    cookie: Cookie | None = None
    if VERSION_FILE in names:
        try:
            cookie = decode_cookie(disk.read(f"{folder}/{VERSION_FILE}"))
        except MetadataError as error:
            raise CookieMismatchError(
                f"{folder}/{VERSION_FILE}: {error}. Copy the file from the bookie's other folder"
            ) from error
    return Found(cookie, any(name != VERSION_FILE for name in names))


def check_storage(disk: Disk, indexes: Sequence[str]) -> None:
    """Refuse index directories of the original's other storages, whose index this bookie does not use.

    CookieMismatchError. Blocking.
    """
    for directory in dict.fromkeys(indexes):
        current = f"{directory}/current"
        if disk.exists(current) and has_index_files(disk, current):
            raise CookieMismatchError(
                f"{current} has index files of SortedLedgerStorage or InterleavedLedgerStorage. Convert them: "
                "`quire shell -conf bk_server.conf convert-to-db-storage`; or give the bookie an empty folder under "
                "another bookieId"
            )


async def check_cookies(
    world: World,
    metadata: MetadataStore,
    expected: Cookie,
    folders: tuple[str, ...],
    *,
    ledgers_root: str,
    losing: Losing | None = None,
) -> None:
    """Check that `folders` (the `current` ones) belong to this bookie; stamp them if it is new. CookieMismatchError."""
    stored = await read_cookie(metadata, expected.bookie_id, root=ledgers_root)
    found = await world.offload.run(lambda: {folder: _find(world.disk, folder) for folder in folders}, name="cookies")
    may_lack = losing is not None and await losing.may_lack()
    if not must_stamp(expected, None if stored is None else stored.value, found, may_lack=may_lack):
        if losing is not None:
            losing.lacking = tuple(folder for folder, there in found.items() if there.cookie is None)
        return
    if losing is None or not await losing.returns():
        await stamp(world, expected, folders)
    try:
        await write_cookie(metadata, expected, None, root=ledgers_root)
    except NodeExistsError as error:
        raise CookieMismatchError(f"another bookie {expected.bookie_id} is being started") from error


async def stamp(world: World, expected: Cookie, folders: tuple[str, ...]) -> None:
    """Write the cookie to the folders. OSError."""
    data = encode_cookie(expected)

    def write() -> None:
        for folder in folders:
            world.disk.write_atomic(f"{folder}/{VERSION_FILE}", data)

    await world.offload.run(write, name="cookies")
