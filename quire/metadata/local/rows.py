"""Format of the embedded store on disk: the tree of nodes as rows of an ordered map.

One row per persistent node, big-endian:

    key    01, depth(2), path in UTF-8         depth = components: `/a/b` has 2; so parents sort before children, and
                                               the children of `/a/b` are the range of 01 0003 "/a/b/"
    value  flags(1) = 0, version(8), counter(8), data            counter: children created here, see `tree`
    key    00 "layout", value layout version(4) = 1              a newer one is refused

A counter is written when a sequence number is taken from it, so numbers are never used twice. Other creates need not
rewrite their parent: a counter that was read may be lower than it was, but not lower than a number taken. Ephemeral
nodes have no row.
"""

from __future__ import annotations

import struct
from itertools import islice
from struct import Struct

from quire.metadata import paths
from quire.metadata.errors import MalformedMetadataError, MetadataError, UnsupportedLayoutError
from quire.metadata.local.tree import EMPTY_ROOT, NOBODY, Tree, Znode
from quire.world.doors import KeyValue

LAYOUT_VERSION = 1

_LAYOUT_KEY = b"\x00layout"
_LAYOUT = Struct("!I")
_NODES_START, _NODES_STOP = b"\x01", b"\x02"
_DEPTH = Struct("!BH")
_HEAD = Struct("!BQQ")


def row_key(path: str) -> bytes:
    """Return the key of a node's row."""
    depth = 0 if path == paths.ROOT else path.count("/")
    return _DEPTH.pack(1, depth) + path.encode()


def row_value(node: Znode) -> bytes:
    return _HEAD.pack(0, node.version, node.counter) + node.value


def prepare(key_value: KeyValue) -> None:
    """Check the layout version, or write it into an empty map; blocking.

    UnsupportedLayoutError for a newer layout, MalformedMetadataError if there is none.
    """
    layout = key_value.get(_LAYOUT_KEY)
    if layout is None:
        if next(iter(key_value.scan(b"", _NODES_STOP)), None) is not None:
            raise MalformedMetadataError("the metadata has nodes but no layout version")
        batch = key_value.batch()
        batch.put(_LAYOUT_KEY, _LAYOUT.pack(LAYOUT_VERSION))
        key_value.write(batch, sync=True)
    elif len(layout) != _LAYOUT.size:
        raise MalformedMetadataError(f"the layout version of the metadata is damaged: {layout!r}")
    elif (found := _LAYOUT.unpack(layout)[0]) != LAYOUT_VERSION:
        raise UnsupportedLayoutError(f"the metadata has layout version {found}; this program knows {LAYOUT_VERSION}")


def read_node(key_value: KeyValue, path: str) -> Znode | None:
    """Read the row of one node; blocking. The root has one only after a change. MalformedMetadataError, OSError."""
    key = row_key(path)
    value = key_value.get(key)
    if value is None:
        return EMPTY_ROOT if path == paths.ROOT else None
    return _parse_row(key, value)[1]


def read_names(key_value: KeyValue, folder: str, count_max: int) -> tuple[list[str], bool]:
    """Read the names of the first children of a node, sorted, and whether these are all; blocking. OSError,
    MalformedMetadataError."""
    prefix = "" if folder == paths.ROOT else folder
    depth = _DEPTH.pack(1, prefix.count("/") + 1)
    start = depth + f"{prefix}/".encode()
    length = len(start)
    # The byte "0" follows "/".
    found = list(islice(key_value.scan(start, depth + f"{prefix}0".encode()), count_max + 1))
    try:
        return [key[length:].decode() for key, _ in found[:count_max]], len(found) <= count_max
    except ValueError as error:
        raise MalformedMetadataError(f"the name of a child of {folder} is damaged") from error


def load(key_value: KeyValue) -> Tree:
    """Read the whole tree; blocking. As `prepare`; also MalformedMetadataError for rows that do not form a tree."""
    prepare(key_value)
    nodes: dict[str, Znode] = {paths.ROOT: EMPTY_ROOT}
    names: dict[str, dict[str, None]] = {}
    folder, children = "", dict[str, None]()
    for key, value in key_value.scan(_NODES_START, _NODES_STOP):
        path, node = _parse_row(key, value)
        if path != paths.ROOT:
            above = paths.parent(path)
            if above != folder:  # siblings follow each other
                if above not in nodes:
                    raise MalformedMetadataError(f"the metadata has a node {path}, but not its parent")
                folder, children = above, names.setdefault(above, {})
            children[paths.name(path)] = None
        nodes[path] = node
    return Tree(nodes, names)


def _parse_row(key: bytes, value: bytes) -> tuple[str, Znode]:
    try:
        path = paths.check(key[_DEPTH.size :].decode())
        flags, version, counter = _HEAD.unpack_from(value)
    except (ValueError, MetadataError) as error:
        raise MalformedMetadataError(f"a row of the metadata is damaged: {key!r}") from error
    except struct.error as error:
        raise MalformedMetadataError(f"the row of {key!r} in the metadata is cut off") from error
    depth = 0 if path == paths.ROOT else path.count("/")
    if flags or key[: _DEPTH.size] != _DEPTH.pack(1, depth):
        raise MalformedMetadataError(f"the row of {path} in the metadata is damaged")
    return path, Znode(value[_HEAD.size :], version, NOBODY, counter)
