"""move-to-cluster: the metadata of a standalone server's data directory become those of a new cluster on ZooKeeper.

The data directory becomes the first bookie's: its journal and entry logs stay where they are. Its metadata are copied
node by node, with four differences:

    <ledgers>/cookies, VERSION     the cookie has the id and the folders of the configuration
    metadata of ledgers            they name the bookie by that id
    <ledgers>/idgen                ids continue in the first bucket of long ids (2^32 and above), because a sequence of
                                   ZooKeeper begins at 0 and cannot be set
    /counters/producer-name        as many numbers are taken from the sequence as the standalone had taken

A node `<prefix>/quire-move` names the data directory's cluster while the copy is incomplete: a cut run is repeated, and
any other content of the store is refused. The standalone server may have run between two runs, so the second one
replaces what has changed, and deletes what is gone. VERSION is changed when all nodes are there. From then on the
standalone server refuses the directory, because its cookie is another: two servers cannot continue from the same data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from bookie.cookie import VERSION_FILE
from bookie.folders import LOCK_FILE
from quire.cli.operations.context import OperationContext
from quire.cli.shell.errors import ShellError
from quire.metadata import ledger_codec, paths
from quire.metadata.bookies import Cookie, decode_cookie, encode_cookie
from quire.metadata.errors import MetadataError, NodeExistsError, NoNodeError
from quire.metadata.layouts import HIERARCHICAL
from quire.metadata.ledger_metadata import Fragment, LedgerState
from quire.metadata.local.rows import load
from quire.metadata.local.tree import Tree
from quire.metadata.store import Create, Delete, Kind, MetadataStore, Op, Put
from quire.metadata.walking import walk
from quire.servers.standalone.data_directory import LOCK_NAME, read_format
from quire.world.doors import Disk
from quire.world.real_disk import RealDisk
from quire.world.real_look import look_into

LEDGERS: Final = "/ledgers"
MARKER: Final = "quire-move"
COUNTER: Final = "/counters/producer-name"
FIRST_BUCKET: Final = "idgen-long/HOB-0000000001"
NODES_AT_ONCE: Final = 100
BYTES_AT_ONCE: Final = 256 << 10
"""Bounds of one write. A node is below a megabyte, ZooKeeper's bound."""


async def move_to_cluster(operation: OperationContext, root: str) -> int:
    """Copy the metadata of a stopped standalone server, whose data directory is `root` (absolute).

    Raises ShellError, MetadataError, OSError."""
    disk = RealDisk()
    if not disk.exists(f"{root}/metadata"):
        raise ShellError(f"{root} is not the data directory of a standalone server: it contains no metadata")
    read_format(disk, f"{root}/FORMAT")
    journal, ledgers = f"{root}/bookie/journal", f"{root}/bookie/ledgers"
    locks = []
    try:
        for path in (f"{root}/{LOCK_NAME}", f"{journal}/{LOCK_FILE}", f"{ledgers}/{LOCK_FILE}"):
            try:
                locks.append(disk.lock(path))
            except BlockingIOError:
                raise ShellError(f"{path} is locked: a server runs on this directory. Stop it first") from None
        rows = look_into(f"{root}/metadata")
        try:
            tree = load(rows)
        finally:
            rows.close()
        return await _move(operation, disk, tree, journal, ledgers)
    finally:
        for lock in locks:
            lock.release()


async def _move(operation: OperationContext, disk: Disk, tree: Tree, journal: str, ledgers: str) -> int:
    shell, output, store = operation.shell, operation.output, operation.store
    folders = (f"{journal}/current/{VERSION_FILE}", f"{ledgers}/current/{VERSION_FILE}")
    old = decode_cookie(disk.read(folders[1]))
    new = _new_cookie(operation, old, journal, ledgers)
    prefix = shell.root.removesuffix(LEDGERS)
    if prefix + LEDGERS != shell.root:
        raise ShellError(f"metadataServiceUri: its path must end with {LEDGERS}, as brokers expect it")
    old_id = _standalone_id(tree)
    nodes = {prefix + path: value for path, value in moved(tree, old_id, new.bookie_id).items()}
    count = sum(1 for path in tree.nodes if _is_ledger(path))
    left_open = sum(1 for path, node in tree.nodes.items() if _is_ledger(path) and _is_open(node.value))
    if operation.dry_run:
        output.tell(
            f"{len(nodes)} nodes with {count} ledgers would be moved; {left_open} ledgers are open",
            nodes=len(nodes),
            ledgers=count,
            openLedgers=left_open,
            dryRun=True,
        )
        return 0
    marker = f"{prefix}/{MARKER}"
    resumed = await _begin(store, prefix, marker, new.instance_id.encode())
    if resumed:
        await _delete_others(store, prefix, {*nodes, marker})
    with output.progress("nodes copied", len(nodes)) as told:
        done = 0
        for batch in _batches(nodes):
            await _create(store, batch, check=resumed)
            done += len(batch)
            told(done)
    await _advance(store, prefix + COUNTER, 0 if (found := tree.nodes.get(COUNTER)) is None else found.counter)
    data = encode_cookie(new)
    _replace(disk, folders, data)
    await _create(store, [(shell.cookie_path(new.bookie_id), data)], check=resumed)
    await store.multi([Delete(path=marker)])
    output.tell(
        f"{len(nodes)} nodes with {count} ledgers moved; the data directory is that of bookie {new.bookie_id}",
        nodes=len(nodes),
        ledgers=count,
        openLedgers=left_open,
        bookie=new.bookie_id,
    )
    return 0


def _replace(disk: Disk, files: Sequence[str], data: bytes) -> None:
    """Give files this content: all of them or, if a disk has no room, none. Raises ShellError."""
    fresh = [f"{path}.moved" for path in files]
    try:
        for path in fresh:
            disk.write_atomic(path, data)
    except OSError as error:
        for made in filter(disk.exists, fresh):
            disk.unlink(made)
        raise ShellError(
            f"{path}: {error.strerror or error}; the data directory is as it was. Make room, and run move-to-cluster "
            "again"
        ) from error
    for made, target in zip(fresh, files, strict=True):
        disk.rename(made, target)
        disk.sync_dir(paths.parent(target))


def _new_cookie(operation: OperationContext, old: Cookie, journal: str, ledgers: str) -> Cookie:
    """Return the cookie by the configuration. Raises ShellError if that names other folders, or no bookie."""
    config = operation.shell.config
    wanted = config.bookie
    for key, given, real in (
        ("journalDirectories", wanted.journal_directories, journal),
        ("ledgerDirectories", wanted.ledger_directories, ledgers),
    ):
        if given != (real,):
            raise ShellError(f"{key}={','.join(given)}: set it to {real}, where the data of the standalone server are")
    if wanted.index_directories:
        raise ShellError(
            f"indexDirectories={','.join(wanted.index_directories)}: leave it out, the indexes are in {ledgers}"
        )
    bookie_id = wanted.bookie_id or (
        f"{config.address.advertised_address}:{wanted.port}" if config.address.advertised_address else ""
    )
    if not bookie_id:
        raise ShellError("the configuration names no bookie: set advertisedAddress, or bookieId")
    return replace(
        old, bookie_id=bookie_id, journal_directories=(journal,), ledger_directories=(ledgers,), index_directories=None
    )


def _standalone_id(tree: Tree) -> str:
    """Return the id of the standalone server's bookie. Raises ShellError if it is not the only one."""
    names = [paths.name(path) for path in tree.nodes if paths.parent(path) == f"{LEDGERS}/cookies"]
    if len(names) != 1:
        raise ShellError(f"the metadata know {len(names)} bookies, not one: was the server ever started to its end?")
    return names[0]


def _is_ledger(path: str) -> bool:
    digits = path.removeprefix(f"{LEDGERS}/").replace("/", "").replace("L", "")
    if not path.startswith(f"{LEDGERS}/") or not digits.isascii() or not digits.isdigit():
        return False
    return path == HIERARCHICAL.path(LEDGERS, int(digits))


def _is_open(value: bytes) -> bool:
    return ledger_codec.decode(value).state is not LedgerState.CLOSED


def moved(tree: Tree, old_id: str, new_id: str) -> dict[str, bytes]:
    """Return the nodes of the cluster by path, parents first. Raises MalformedMetadataError for a ledger that cannot be
    read."""
    found: dict[str, bytes] = {}
    for path, node in sorted(tree.nodes.items(), key=lambda item: (item[0].count("/"), item[0])):
        value = node.value
        if path == paths.ROOT or paths.parent(path) in (f"{LEDGERS}/cookies", COUNTER):
            continue
        if paths.parent(path) == "/admin/clusters" and value == b"{}":
            continue  # initialize-cluster-metadata makes it with the addresses
        if path == f"{LEDGERS}/idgen":
            value = b""
        elif _is_ledger(path):
            value = renamed(value, old_id, new_id)
        found[path] = value
    for path in (f"{LEDGERS}/idgen-long", f"{LEDGERS}/{FIRST_BUCKET}"):
        found.setdefault(path, b"")
    return found


def renamed(value: bytes, old_id: str, new_id: str) -> bytes:
    """Return the metadata of a ledger with another name of a bookie."""
    metadata = ledger_codec.decode(value)
    fragments = tuple(
        Fragment(each.first_entry_id, tuple(new_id if name == old_id else name for name in each.bookies))
        for each in metadata.fragments
    )
    return ledger_codec.encode(replace(metadata, fragments=fragments))


# --- the store


async def _begin(store: MetadataStore, prefix: str, marker: str, instance: bytes) -> bool:
    """Create the marker; return whether an earlier run of the same move is continued. Raises ShellError."""
    there = await store.get(marker)
    if there is not None:
        if there.value != instance:
            raise ShellError(f"{marker} belongs to the move of another data directory: use an empty store")
        return True
    for path in (LEDGERS, "/managed-ledgers", "/admin"):
        if await store.get(prefix + path) is not None:
            raise ShellError(
                f"the store has {prefix + path} already: move-to-cluster needs an empty one. Name another path in "
                "metadataServiceUri, and run initialize-cluster-metadata afterwards, not before"
            )
    await store.create(marker, instance, make_parents=True)
    return False


def _batches(nodes: Mapping[str, bytes]) -> Iterator[Sequence[tuple[str, bytes]]]:
    """Yield the nodes in order, some at a time."""
    batch: list[tuple[str, bytes]] = []
    size = 0
    for path, value in nodes.items():
        if batch and (len(batch) == NODES_AT_ONCE or size + len(value) > BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append((path, value))
        size += len(value) + len(path)
    if batch:
        yield batch


async def _create(store: MetadataStore, nodes: Sequence[tuple[str, bytes]], *, check: bool) -> None:
    """Create nodes in one write. `check`: an earlier run may have created some, perhaps with older values."""
    ops: list[Op] = []
    for path, value in nodes:
        there = await store.get(path) if check else None
        if there is None:
            ops.append(Create(path=path, value=value))
        elif there.value != value:
            ops.append(Put(path=path, value=value, version=there.version))
    for path, _ in nodes[:1]:
        above = paths.parent(path)
        if above != paths.ROOT and await store.get(above) is None:
            await _ensure(store, above)
    if ops:
        await store.multi(ops)


async def _delete_others(store: MetadataStore, prefix: str, wanted: set[str]) -> None:
    """Delete nodes below the prefix that an earlier run has created and that the data directory has no longer. The
    folders above those that are wanted stay."""
    needed = set(wanted)
    for path in wanted:
        while (path := paths.parent(path)) != paths.ROOT and path not in needed:
            needed.add(path)
    found = [path async for path, _ in walk(store) if path.startswith(f"{prefix}/") and path not in needed]
    for path in sorted(found, key=lambda each: each.count("/"), reverse=True):
        await store.delete(path)


async def _ensure(store: MetadataStore, path: str) -> None:
    try:
        await store.create(path, make_parents=True)
    except NodeExistsError:
        pass  # an earlier run has created it


async def _advance(store: MetadataStore, folder: str, count: int) -> None:
    """Take numbers from a sequence until it is as far as it was."""
    await _ensure(store, folder)
    while True:
        made = await store.create(f"{folder}/-", kind=Kind.EPHEMERAL, sequential=True)
        try:
            await store.delete(made)
        except NoNodeError as error:
            raise MetadataError(f"{made} was deleted by another client") from error
        if int(made.rpartition("-")[2]) + 1 >= count:
            return
