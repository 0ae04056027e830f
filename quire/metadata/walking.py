"""All nodes of a metadata store that outlive sessions, in an order that suits a copy made while servers run.

Why this is hard: there is no snapshot of many nodes. Each is as it was at some moment of the walk, so a node may be
older than one that it names. The order makes this harmless: lists of ledgers, cursors and schemas come before the
ledgers. So a ledger that a list names was in the store when the list was read, and is missing in the copy only if it
was deleted since, as ledgers are that nothing needs. The counter of ledger ids comes last.

Left out are ephemeral nodes (registrations, owners of bundles, locks, elections: they say which processes run),
`/zookeeper` (the store's own), and the mark of a restoration.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterator
from typing import Final

import trio

from quire.metadata import paths
from quire.metadata.errors import NoNodeError
from quire.metadata.store import Kind, MetadataStore

RESTORING: Final = "/quire-restoring"
"""Node that exists while a backup is being restored; its value names the backup."""
SORTED_IN_STEP: Final = 2000
"""Names that are sorted before other tasks run."""
_OWN: Final = frozenset(("/zookeeper", RESTORING))
_LAST: Final = frozenset(("ledgers", "idgen", "idgen-long"))
"""Components that come after the others of their folder."""
_PRODUCER_NAMES: Final = "/counters/producer-name/-"
_Key = tuple[tuple[bool, str], ...]


def walk_key(path: str) -> _Key:
    """Return the place of a node in the walk.

    >>> walk_key("/ledgers/idgen") > walk_key("/ledgers/00") > walk_key("/managed-ledgers/a") > walk_key("/")
    True
    """
    return tuple((part in _LAST, part) for part in path.split("/")[1:]) if path != paths.ROOT else ()


async def walk(store: MetadataStore, after: str = "") -> AsyncGenerator[tuple[str, bytes], None]:
    """Yield path and value of each node behind `after` ("": of all but the root), parents first.

    Raises the errors of the store."""
    start = walk_key(after) if after else ()
    folders = [(paths.ROOT, iter(await _in_order(store, paths.ROOT, start)))]
    while folders:
        folder, names = folders[-1]
        name = next(names, None)
        if name is None:
            folders.pop()
            continue
        path = paths.join(folder, name)
        if path in _OWN:
            continue
        node = await store.get(path)
        if node is None or node.ephemeral:
            continue
        if walk_key(path) > start:
            yield path, node.value
        folders.append((path, iter(await _in_order(store, path, start))))


async def _in_order(store: MetadataStore, folder: str, start: _Key) -> list[str]:
    """Return the names in a folder from the start of the walk on, in its order.

    They are sorted in runs, with other tasks between them, because a namespace may have 100,000 topics."""
    names = await _names(store, folder)
    for at in range(0, len(names), SORTED_IN_STEP):
        names[at : at + SORTED_IN_STEP] = sorted(names[at : at + SORTED_IN_STEP])
        await trio.lowlevel.checkpoint()
    names.sort()  # merges the runs
    if not _LAST.isdisjoint(names):
        names = [each for each in names if each not in _LAST] + [each for each in names if each in _LAST]
    key = walk_key(folder)
    if len(start) > len(key) and start[: len(key)] == key:
        # A folder before the start is entered only if the start is in it.
        last, name = start[len(key)]
        first = bisect_left(names, (last, name), key=lambda each: (each in _LAST, each))
        names = names[first:]
    return names


async def some_nodes(
    store: MetadataStore, after: str, *, nodes_max: int, bytes_max: int
) -> tuple[list[tuple[str, bytes]], bool]:
    """Return the next nodes of a walk, at least one if there is one, and whether there may be more."""
    found: list[tuple[str, bytes]] = []
    size = 0
    nodes = walk(store, after)
    try:
        async for path, value in nodes:
            found.append((path, value))
            size += len(path) + len(value)
            if len(found) == nodes_max or size >= bytes_max:
                return found, True
    finally:
        await nodes.aclose()
    return found, False


def sequence_prefixes(ledgers_root: str, folders: list[str]) -> Iterator[str]:
    """Yield the prefixes of sequential nodes whose numbers must never come again. `folders`: names in idgen-long."""
    yield _PRODUCER_NAMES
    yield f"{paths.join(ledgers_root, 'idgen')}/ID-"
    for each in folders:
        yield f"{paths.join(ledgers_root, 'idgen-long')}/{each}/ID-"


async def next_numbers(store: MetadataStore, ledgers_root: str) -> dict[str, int]:
    """Return the next number of each sequence that exists, which is used up. Raises the errors of the store.

    The folder of ids of a standalone server is none: its node has the next id as its value."""
    found: dict[str, int] = {}
    for prefix in sequence_prefixes(ledgers_root, await _names(store, paths.join(ledgers_root, "idgen-long"))):
        folder = await store.get(paths.parent(prefix))
        if folder is not None and not folder.value.isdigit():
            found[prefix] = await take_number(store, prefix)
    return found


async def take_number(store: MetadataStore, prefix: str) -> int:
    """Return the next number of a sequence, which is used up."""
    path = await store.create(prefix, kind=Kind.EPHEMERAL, sequential=True, make_parents=True)
    await store.delete(path)
    return int(path[len(prefix) :])


async def _names(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNodeError:
        return []
