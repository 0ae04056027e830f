"""Lists of topics as clients ask for them: their hash, and patterns (pure).

A pattern is a client's regular expression, and is matched while everybody else waits: so only what can be matched in
linear time is: literals, `.`, classes, and `* + ?` behind one of these. Anything else (groups, alternatives, counts ...) is
left to the client, which filters again whatever it gets; the answer says which it was.
Source: the original's TopicList (hash, what a pattern is matched with); it matches with RE2, which is linear too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from crc32c import crc32c

from quire.wire.pulsar.names import DOMAINS, TopicName

PATTERN_SIZE_MAX = 50
"""Characters; a longer one is left to the client. Source: subscriptionPatternMaxLength."""

_ATOM = re.compile(r"(\[\^?[A-Za-z0-9_./:-]+\]|\\[^0-9A-Za-z]|\\[dw]|[^\\\[\](){}|^$*+?])([*+?]?)(?![*+?{])")

_LITERAL = re.compile(r"[A-Za-z0-9_/:-]+(?![*+?{])")


def topics_hash(names: Iterable[str]) -> str:
    """crc32c of the names in order, joined by commas: eight hex digits, the lowest byte first.

    >>> topics_hash(["persistent://public/default/b", "persistent://public/default/a"])
    'c7559e98'
    """
    in_order = sorted(names, key=lambda name: name.encode("utf-16-be"))  # as Java orders strings
    return int(crc32c(",".join(in_order).encode())).to_bytes(4, "little").hex()


def topic_pattern(pattern: str) -> Callable[[TopicName], bool] | None:
    """What tells whether a topic matches: its name, or that of the topic it is a partition of, without `persistent://`, as a
    whole. None: this pattern is not for us.

    >>> matches = topic_pattern("public/default/or.*")
    >>> matches(TopicName.parse("orders-partition-3")), matches(TopicName.parse("lorries"))
    (True, False)
    """
    for domain in DOMAINS:
        pattern = pattern.removeprefix(f"{domain}://")
    if len(pattern) > PATTERN_SIZE_MAX:
        return None
    pattern = pattern.removeprefix("^")
    # Most patterns begin with a namespace and a bit of a name: what does not, costs no more than that.
    literal = _LITERAL.match(pattern)
    prefix = "" if literal is None else literal.group()
    steps = _parse(pattern[len(prefix) :])
    if steps is None:
        return None

    def matches(name: TopicName) -> bool:
        text = name.partitioned.full.partition("://")[2]
        return text.startswith(prefix) and _matches(steps, text[len(prefix) :])

    return matches


_Step = tuple[Callable[[str], object], bool, bool]
"""Tells whether a character fits; whether there may be none; whether there may be more."""


def _parse(pattern: str) -> list[_Step] | None:
    steps: list[_Step] = []
    if not pattern.endswith("\\$"):
        pattern = pattern.removesuffix("$")
    at = 0
    while at < len(pattern):
        found = _ATOM.match(pattern, at)
        if found is None:
            return None
        atom, times = found.groups()
        try:
            fits = re.compile(atom, re.ASCII).fullmatch
        except re.error:
            return None
        steps.append((fits, times in ("*", "?"), times in ("*", "+")))
        at = found.end()
    return steps


def _matches(steps: list[_Step], text: str) -> bool:
    """All places of the pattern at once, character by character: steps times characters, whatever the pattern."""
    end = len(steps)

    def skip(place: int, places: set[int]) -> None:
        places.add(place)
        while place < end and steps[place][1]:
            place += 1
            places.add(place)

    places: set[int] = set()
    skip(0, places)
    for character in text:
        following: set[int] = set()
        for place in places:
            if place < end and steps[place][0](character):
                if steps[place][2]:
                    skip(place, following)
                skip(place + 1, following)
        places = following
        if not places:
            return False
    return end in places
