"""Notes that copies of a ledger may be missing, written by a writer or recovery, for the auditor to check.

    <root>/underreplication/unacked/L<id as %010d>    persistent: an entry id, decimal; -1 for the whole ledger

An entry is confirmed by its ack quorum. A slower member to which nothing more is sent may never get its copy.
Registrations do not show this, because the bookie may have been cut off from that writer alone. The note stays until
the fragments with the entries before the named one are closed and were compared with the lists of their members.

The originals ignore this folder. Auto recovery creates it; where that never ran, nothing is written.
"""

from __future__ import annotations

from quire.metadata import paths
from quire.metadata.errors import BadVersionError, MalformedMetadataError, NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION, MetadataStore

FOLDER = "underreplication/unacked"
WHOLE = -1


def folder(root: str) -> str:
    """Return the folder of the notes."""
    return paths.join(root, FOLDER)


def path_of(root: str, ledger_id: int) -> str:
    """Return the path of the note on a ledger.

    >>> path_of("/ledgers", 7)
    '/ledgers/underreplication/unacked/L0000000007'
    """
    return paths.join(folder(root), f"L{ledger_id:010d}")


def ledger_of(name: str) -> int | None:
    """Return the ledger id in the name of a note; None if it is another name.

    >>> ledger_of("L0000000007"), ledger_of("x7")
    (7, None)
    """
    digits = name.removeprefix("L")
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None


def decode(value: bytes) -> int:
    """Return the entry before which copies may be missing; WHOLE for every entry. MalformedMetadataError."""
    try:
        return int(value.decode("ascii"))
    except ValueError as error:
        raise MalformedMetadataError(f"not a note on missing copies: {value!r}") from error


async def withdraw(store: MetadataStore, root: str, ledger_id: int) -> None:
    """Delete a note that was written just now: its copies have arrived. MetadataError.

    A note that replaced an older one stays, because that one may be about other copies. Its version is not the first.
    """
    try:
        await store.delete(path_of(root, ledger_id), 0)
    except (NoNodeError, BadVersionError):
        pass


async def write(store: MetadataStore, root: str, ledger_id: int, before: int) -> None:
    """Store a note that copies of entries before `before` (WHOLE: of any) may be missing. MetadataError.

    An existing note is replaced, because a check in progress may not have seen the entries of this one.
    """
    path = path_of(root, ledger_id)
    while True:
        try:
            await store.create(path, b"%d" % before)
            return
        except NoNodeError:
            return
        except NodeExistsError:
            node = await store.get(path)
        if node is None:
            continue
        try:
            known = decode(node.value)
        except MalformedMetadataError:
            known = WHOLE
        larger = WHOLE if WHOLE in (known, before) else max(known, before)
        try:
            await store.put(path, b"%d" % larger, ANY_VERSION)
            return
        except NoNodeError:
            continue
