"""Notes that copies of a ledger may be missing: made by the writer or the recovery that knows, for the auditor to check.

    <root>/underreplication/unacked/L<id as %010d>    persistent: an entry id, decimal; -1 for the whole ledger

An entry is confirmed by its ack quorum. A member that was slower, and is sent nothing more, may never get its copy; no
registration shows it, for the bookie may have been cut off from that writer alone. The note stands until the fragments that hold
the entries before the one it names are closed and were compared with what their members list.

The originals look neither for this folder nor into it. Auto recovery makes it; where that never ran nothing is written.
"""

from __future__ import annotations

from quire.metadata import paths
from quire.metadata.errors import MalformedMetadataError, NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION, MetadataStore

FOLDER = "underreplication/unacked"
WHOLE = -1


def folder(root: str) -> str:
    """Where the notes are."""
    return paths.join(root, FOLDER)


def path_of(root: str, ledger_id: int) -> str:
    """The note on a ledger.

    >>> path_of("/ledgers", 7)
    '/ledgers/underreplication/unacked/L0000000007'
    """
    return paths.join(folder(root), f"L{ledger_id:010d}")


def ledger_of(name: str) -> int | None:
    """The ledger id in the name of a note; None if it is something else.

    >>> ledger_of("L0000000007"), ledger_of("x7")
    (7, None)
    """
    digits = name.removeprefix("L")
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None


def decode(value: bytes) -> int:
    """The entry before which copies may be missing; WHOLE for every entry. MalformedMetadataError."""
    try:
        return int(value.decode("ascii"))
    except ValueError as error:
        raise MalformedMetadataError(f"no note on missing copies: {value!r}") from error


async def write(store: MetadataStore, root: str, ledger_id: int, before: int) -> None:
    """Note that copies of entries before `before` (WHOLE: of any) may be missing. A note that is there is replaced, as a check
    may be under way that has not seen what this one is about. MetadataError."""
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
