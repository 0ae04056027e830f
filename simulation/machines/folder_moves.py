"""Folders of the simulated disk that get another name, with all in them. Pure.

A folder that moves is durable with the `sync_dir` of a folder that it leaves, enters, or holds. Names in it that were
changed before that, and are not durable, stay so at their new places: a file system stores them apart from its name.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FolderMove:
    """A folder `old` that is `new` from then on.

    >>> move = FolderMove("/a", "/b")
    >>> move.after("/a/c"), move.before("/b"), move.after("/ab")
    ('/b/c', '/a', '/ab')
    """

    old: str
    new: str

    def apply(self, names: dict[str, dict[str, T | None]]) -> None:
        """Move the folder and all below it, where `names` has it."""
        for path in [each for each in names if _is_below(each, self.old)]:
            names[self.after(path)] = names.pop(path)
        (left, name), (entered, new_name) = self.touched()
        names[left].pop(name, None)
        names[entered][new_name] = None

    def touched(self) -> list[tuple[str, str]]:
        """Return the folder and the name in it of both places."""
        left, name = posixpath.split(self.old)
        entered, new_name = posixpath.split(self.new)
        return [(left, name), (entered, new_name)]

    def after(self, path: str) -> str:
        """Return the path, which was valid before, as it is after the move."""
        return self.new + path[len(self.old) :] if _is_below(path, self.old) else path

    def before(self, path: str) -> str:
        """Return the path, which is valid after, as it was before the move."""
        return self.old + path[len(self.new) :] if _is_below(path, self.new) else path

    def holds(self, path: str) -> bool:
        """Return whether a path is that of the folder, or below it, after the move."""
        return _is_below(path, self.new)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
