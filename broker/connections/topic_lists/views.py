"""The topics of a namespace that match one pattern, as its watchers know them (pure).

A view has the names that match and their hash. `change` takes what was added to the namespace and removed, and returns
the updates for watchers: each has the hash of the list that it leads to, and at most `UPDATE_NAMES_MAX` names. So a
watcher that has received any number of them has a list and a hash that belong together.

What holds:
- Complete: after all updates a watcher has exactly the matching topics of the new list.
- Once: a name that the view has is not added again, and one that it does not have is not removed.

Source: the original's TopicListService.TopicListWatcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from broker.connections.topic_lists.hashes import topics_hash
from broker.connections.topic_lists.patterns import topic_pattern
from broker.errors import NotAllowedError
from quire.wire.pulsar.names import TopicName

UPDATE_NAMES_MAX: Final = 2_000
"""Names in one update: it is encoded on the event loop, for each watcher."""
UPDATE_BYTES_MAX: Final = 1 << 20
"""Bytes of the names in one update."""
LIST_BYTES_MAX: Final = 4 << 20
"""Bytes of the names in the first list, which is sent as a whole: clients take frames up to 5 MiB."""


@dataclass(frozen=True, slots=True)
class Update:
    """A change as watchers are told it."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    topics_hash: str
    """Hash of the list with this update."""


@dataclass(frozen=True, slots=True)
class View:
    """Topics of a namespace that match a pattern."""

    pattern: str
    names: Mapping[str, None]
    """Full names, in the order in which they are listed."""
    topics_hash: str


def view_of(pattern: str, topics: Iterable[TopicName]) -> View:
    """Return the first view of a pattern. Raises NotAllowedError if the pattern cannot be matched here, or matches too
    much for one answer."""
    matches = topic_pattern(pattern)
    if matches is None:
        raise NotAllowedError(f"the pattern {pattern[:100]!a} cannot be matched in linear time by this broker")
    names = dict.fromkeys(name.full for name in topics if matches(name))
    if sum(map(len, names)) > LIST_BYTES_MAX:
        raise NotAllowedError(f"{len(names)} topics match the pattern: too many for one list")
    return View(pattern, names, topics_hash(names))


def change(view: View, added: Iterable[TopicName], removed: Iterable[TopicName]) -> tuple[View, list[Update]]:
    """Return the view after a change of the namespace, and the updates that lead to it."""
    matches = topic_pattern(view.pattern)
    assert matches is not None, "there is a view of it"
    names = dict(view.names)
    new = [name.full for name in added if name.full not in names and matches(name)]
    gone = [name.full for name in removed if name.full in names]
    updates: list[Update] = []
    for part_added, part_removed in _parts(new, gone):
        for name in part_removed:
            del names[name]
        names.update(dict.fromkeys(part_added))
        updates.append(Update(tuple(part_added), tuple(part_removed), topics_hash(names)))
    if not updates:
        return view, []
    return replace(view, names=names, topics_hash=updates[-1].topics_hash), updates


def _parts(added: list[str], removed: list[str]) -> Iterable[tuple[list[str], list[str]]]:
    """Yield the change in parts of a bounded size."""
    part: tuple[list[str], list[str]] = ([], [])
    count = size = 0
    for index, names in ((1, removed), (0, added)):
        for name in names:
            part[index].append(name)
            count += 1
            size += len(name.encode())
            if count >= UPDATE_NAMES_MAX or size >= UPDATE_BYTES_MAX:
                yield part
                part = ([], [])
                count = size = 0
    if count:
        yield part
