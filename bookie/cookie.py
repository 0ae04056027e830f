"""Cookies: they identify a bookie's folders, so that a wiped, swapped or unmounted disk is noticed.

Each folder of a bookie carries a cookie, and the cluster stores a copy.

    no copy in the cluster    every folder must be empty: this is a new bookie; the folders are stamped, then the
                              cluster stores a copy
    a copy in the cluster     every folder must carry the same cookie; a folder without one was wiped or is not mounted,
                              and a bookie serving it would answer "no such entry" for entries it has acknowledged
    the same, and ledger      refused, unless allowStorageExpansion is set: then the new folders must be empty, none may
    folders were added        be missing, and all are stamped again, the new ones first and the cluster last. A crash in
                              between is finished at the next start with the same configuration

Journal folders cannot be added: the place of a ledger's records depends on their number.

Source: BookKeeper's LegacyCookieValidation and Cookie.verifyIsSuperSet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from bookie.errors import CookieMismatchError
from bookie.interleaved.index_files import has_index_files
from quire.metadata.bookies import Cookie, decode_cookie, encode_cookie, read_cookie, write_cookie
from quire.metadata.errors import BadVersionError, MetadataError, NodeExistsError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.world.doors import Disk, World

log = get_logger(__name__)

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


class Stamp(Enum):
    """Decision on the cookies."""

    NONE = "all are there"
    NEW = "the bookie is new: stamp the folders, and give the cluster its first copy"
    AGAIN = "ledger folders were added: stamp all folders, and replace the cluster's copy"


def must_stamp(
    expected: Cookie,
    stored: Cookie | None,
    found: Mapping[str, Found],
    added: Collection[str] = (),
    *,
    may_lack: bool = False,
) -> Stamp:
    """Decide whether this is a new bookie, a known one, or a known one with more ledger folders. Pure.

    `stored` is the cluster's copy, `found` what each folder has, and `added` the folders that may be new. Without
    `added`, the folders must be those of the cookies; with `may_lack`, some may lack theirs. CookieMismatchError says
    what is wrong and what to do.
    """
    if stored is None:
        for folder, there in found.items():
            if there.cookie is not None:
                _same(expected, there.cookie, f"{folder}/{VERSION_FILE}")
            if there.has_data:
                raise CookieMismatchError(
                    f"{folder} holds data, but the cluster does not know bookie {expected.bookie_id}. Name the right "
                    "metadata store; or give the bookie an empty folder"
                )
        return Stamp.NEW
    expands = bool(added)
    _same(expected, stored, "the cluster", may_grow=expands)
    for folder, there in found.items():
        if folder in added:
            if there.has_data:
                raise CookieMismatchError(
                    f"{folder} is to be added to bookie {expected.bookie_id}, but is not empty: add an empty folder"
                )
            if there.cookie is None:
                continue
        if there.cookie is None and may_lack and not expands:
            continue
        if there.cookie is None:
            raise CookieMismatchError(_without_cookie(expected.bookie_id, folder, has_data=there.has_data))
        _same(expected, there.cookie, f"{folder}/{VERSION_FILE}", may_grow=expands)
    return Stamp.AGAIN if expands else Stamp.NONE


def added_folders(expected: Cookie, stored: Cookie | None) -> tuple[str, ...]:
    """Return the ledger and index folders, as cookies name them, that the cluster's copy does not have. Pure."""
    if stored is None:
        return ()
    known = {*stored.ledger_directories, *(stored.index_directories or ())}
    wanted = (*expected.ledger_directories, *(expected.index_directories or ()))
    return tuple(dict.fromkeys(folder for folder in wanted if folder not in known))


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


def _same(expected: Cookie, other: Cookie, whose: str, *, may_grow: bool = False) -> None:
    for name in ("bookie_id", "instance_id", "journal_directories", "ledger_directories", "index_directories"):
        mine, theirs = getattr(expected, name), getattr(other, name)
        if mine == theirs or (name == "instance_id" and not theirs):
            continue
        grows = name in ("ledger_directories", "index_directories")
        if grows and may_grow and set(_folders_of(other, name)) <= set(_folders_of(expected, name)):
            continue
        remedy = _GROWN if grows and len(_folders_of(expected, name)) > len(_folders_of(other, name)) else ""
        raise CookieMismatchError(
            f"the cookie of {whose} is for another bookie: its {name} is {theirs!r}, ours is {mine!r}. Start with "
            f"the configuration the folders were made with{remedy}; if the file is damaged, "
            f"copy {VERSION_FILE} from the bookie's other folder"
        )


_GROWN: Final = ", or set allowStorageExpansion=true to add empty ledger folders to all those that it has"


def _folders_of(cookie: Cookie, name: str) -> tuple[str, ...]:
    """Return its folders of a kind; the indexes are in the ledger folders if the cookie names none."""
    folders: tuple[str, ...] = getattr(cookie, name) or cookie.ledger_directories
    return folders


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
    folders: Mapping[str, str],
    *,
    ledgers_root: str,
    may_expand: bool = False,
    losing: Losing | None = None,
) -> None:
    """Check that the folders belong to this bookie; stamp them if it is new, or if ledger folders were added.

    `folders`: the `current` ones, with the name that cookies have for each. CookieMismatchError.
    """
    stored = await read_cookie(metadata, expected.bookie_id, root=ledgers_root)
    found = await world.offload.run(lambda: {folder: _find(world.disk, folder) for folder in folders}, name="cookies")
    known = None if stored is None else stored.value
    names = added_folders(expected, known) if may_expand else ()
    added = [folder for folder, name in folders.items() if name in names]
    may_lack = losing is not None and await losing.may_lack()
    wanted = must_stamp(expected, known, found, added, may_lack=may_lack)
    if losing is not None and known is not None:
        losing.lacking = tuple(each for each, there in found.items() if there.cookie is None and each not in added)
    if wanted is Stamp.NONE:
        return
    if wanted is not Stamp.NEW or losing is None or not await losing.returns():
        await stamp(world, expected, (*added, *(each for each in folders if each not in added)))
    try:
        await write_cookie(metadata, expected, None if stored is None else stored.version, root=ledgers_root)
    except (NodeExistsError, BadVersionError) as error:
        raise CookieMismatchError(f"another bookie {expected.bookie_id} is being started") from error
    if wanted is Stamp.AGAIN:
        log.info("ledger directories added", bookie=expected.bookie_id, folders=", ".join(added))


async def stamp(world: World, expected: Cookie, folders: Sequence[str]) -> None:
    """Write the cookie to the folders, in this order. OSError."""
    data = encode_cookie(expected)

    def write() -> None:
        for folder in folders:
            world.disk.write_atomic(f"{folder}/{VERSION_FILE}", data)

    await world.offload.run(write, name="cookies")
