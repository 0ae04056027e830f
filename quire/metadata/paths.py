"""Paths of nodes (pure): `/a/b/c`. The rules are ZooKeeper's, so that all stores refuse the same paths.

A component is not empty, not `.` or `..`, and has no control character (NUL included), no surrogate or private-use
character (U+D800..U+F8FF) and none of U+FFF0..U+FFFF. Source: ZooKeeper programmer's guide, "Data model".
"""

from __future__ import annotations

import re

from quire.metadata.errors import InvalidPathError

ROOT = "/"

_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")


def check(path: str) -> str:
    """Return the path if it is valid for a node; InvalidPathError otherwise.

    >>> check("/ledgers/LAYOUT")
    '/ledgers/LAYOUT'
    """
    if not is_valid(path):
        raise InvalidPathError(f"invalid node path {path!r}")
    return path


def is_valid(path: str) -> bool:
    """Return whether a node can have the path."""
    return path == ROOT or _PATH.fullmatch(path) is not None


def parent(path: str) -> str:
    """Return the path of the parent; the root's parent is the root.

    >>> parent("/a/b"), parent("/a"), parent("/")
    ('/a', '/', '/')
    """
    return path[: path.rindex("/")] or ROOT


def name(path: str) -> str:
    """Return the last component; empty for the root."""
    return path[path.rindex("/") + 1 :]


def join(folder: str, child: str) -> str:
    """Return the path of a child.

    >>> join("/", "a"), join("/a", "b")
    ('/a', '/a/b')
    """
    return f"/{child}" if folder == ROOT else f"{folder}/{child}"
