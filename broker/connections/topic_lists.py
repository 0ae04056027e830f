"""Lists of topics as clients ask for them: their hash, and patterns (pure).

A pattern is a client's regular expression, so only what can be matched in linear time is: literals, `.`, classes, and
`* + ?` behind one of these. Anything else (groups, alternatives, counts ...) is left to the client, which filters again
whatever it gets; the answer says which it was. A thousand names take 25 ms with the worst pattern, so all of this is
for a worker, not for the event loop.
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


def listed(names: Iterable[TopicName], matches: Callable[[TopicName], bool] | None) -> tuple[list[str], str]:
    """Return the full names that match, and their hash."""
    found = [name.full for name in names if matches is None or matches(name)]
    return found, topics_hash(found)


def topic_pattern(pattern: str) -> Callable[[TopicName], bool] | None:
    """Return a predicate that matches a topic by its name, or that of the topic it is a partition of, without
    `persistent://`, as a whole; None: the pattern is not supported here.

    >>> matches = topic_pattern("public/default/or.*")
    >>> matches(TopicName.parse("orders-partition-3")), matches(TopicName.parse("lorries"))
    (True, False)
    """
    for domain in DOMAINS:
        pattern = pattern.removeprefix(f"{domain}://")
    if len(pattern) > PATTERN_SIZE_MAX:
        return None
    pattern = pattern.removeprefix("^")
    # Most patterns begin with a namespace and part of a name. Names without that beginning cost nothing more.
    literal = _LITERAL.match(pattern)
    prefix = "" if literal is None else literal.group()
    steps = _parse(pattern[len(prefix) :])
    if steps is None:
        return None
    rest = _Places(steps)

    def matches(name: TopicName) -> bool:
        text = name.partitioned.full.partition("://")[2]
        return text.startswith(prefix) and rest.match(text[len(prefix) :])

    return matches


_Step = tuple[Callable[[str], object], bool, bool]
"""Three facts: a test of one character; none may be there; more than one may be there."""


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


class _Places:
    """All places of a pattern at once, as the bits of a number: bit n is the place before step n, the last one the end.

    A character costs a few operations on it, whatever the pattern.
    Source: the extended Shift-And automaton (Navarro and Raffinot, Flexible Pattern Matching in Strings, 4.2)."""

    def __init__(self, steps: list[_Step]) -> None:
        self._steps = steps
        self._end = 1 << len(steps)
        self._firsts = self._lasts = self._inner = 0
        """Masks of each row of optional steps: the place before it, the place behind it, and all but the first."""
        for place, (_, optional, _) in enumerate(steps):
            if optional:
                if not place or not steps[place - 1][1]:
                    self._firsts |= 1 << place
                if place + 1 == len(steps) or not steps[place + 1][1]:
                    self._lasts |= 2 << place
                self._inner |= 2 << place
        self._fitting: dict[str, tuple[int, int]] = {}
        """By character: the steps that it fits, and those of them that may be repeated."""

    def match(self, text: str) -> bool:
        places = self._skip(1)
        fitting = self._fitting
        for character in text:
            found = fitting.get(character)
            if found is None:
                found = fitting[character] = self._fit(character)
            fits, repeats = found
            places = self._skip((places & fits) << 1 | places & repeats)
            if not places:
                return False
        return bool(places & self._end)

    def _skip(self, places: int) -> int:
        """Add the places that are reached by skipping optional steps: a subtraction carries through each row of
        them."""
        reached = places | self._lasts
        return places | self._inner & (~(reached - self._firsts) ^ reached)

    def _fit(self, character: str) -> tuple[int, int]:
        fits = repeats = 0
        for place, (fit, _, repeated) in enumerate(self._steps):
            if fit(character):
                fits |= 1 << place
                repeats |= repeated << place
        return fits, repeats
