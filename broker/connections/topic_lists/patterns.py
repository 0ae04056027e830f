"""Patterns of clients: regular expressions, matched in linear time (pure).

Why this is hard: a pattern comes from outside, and engines that go back and try again take years for some of 20
characters. RE2 never goes back, but it may need much memory for a pattern that counts, such as `((.{0,30}){0,30})x`,
and is slow when it gets too little of it. So patterns are bounded in length by the configuration, and in the size of
what they are compiled to here: whatever is left takes at most about 0.1 ms per name. For a long list that is too much
for the event loop: compiling and matching are for a worker.

What cannot be matched here (look-ahead, references, patterns that are too large) is left to the client, which filters
again whatever it gets.
Source: the original's TopicList.filterTopics, and RE2J, which it uses. See docs/adr/0008-patterns-with-re2.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from broker.connections.topic_lists.hashes import topics_hash
from quire.wire.pulsar.names import DOMAINS, TopicName

COMPILED_BYTES_MAX: Final = 64 << 10
"""Memory of RE2 for one pattern: its program, and its tables while it matches."""

Matches = Callable[[TopicName], bool]


def without_domain(pattern: str) -> str:
    """Return the pattern without `persistent://`, which names are matched without."""
    for domain in DOMAINS:
        pattern = pattern.removeprefix("^").removeprefix(f"{domain}://")
    return pattern


@lru_cache(maxsize=64)
def topic_pattern(pattern: str | bytes) -> Matches | None:
    """Return a predicate that matches a topic by its name, or that of the topic it is a partition of, without
    `persistent://`, as a whole; None: the pattern cannot be matched here, or is not UTF-8 (bytes).

    >>> matches = topic_pattern("public/default/(or|off).*")
    >>> matches(TopicName.parse("orders-partition-3")), matches(TopicName.parse("lorries"))
    (True, False)
    """
    if not isinstance(pattern, str):
        return None
    import re2  # only clients with a pattern need it

    options = re2.Options()
    options.max_mem = COMPILED_BYTES_MAX
    options.log_errors = False
    try:
        fits = re2.compile(without_domain(pattern), options).fullmatch
    except re2.error:
        return None

    def matches(name: TopicName) -> bool:
        return fits(name.partitioned.full.partition("://")[2]) is not None

    return matches


def listed(names: Iterable[TopicName], pattern: str | bytes | None) -> tuple[list[str], str, bool]:
    """Return the full names that match, their hash, and whether the pattern was matched; if not, they are all."""
    matches = None if pattern is None else topic_pattern(pattern)
    found = [name.full for name in names if matches is None or matches(name)]
    return found, topics_hash(found), matches is not None
