"""The hash of a list of topics (pure). Source: the original's TopicList."""

from __future__ import annotations

from collections.abc import Iterable

from crc32c import crc32c


def topics_hash(names: Iterable[str]) -> str:
    """crc32c of the names in order, joined by commas: eight hex digits, the lowest byte first.

    >>> topics_hash(["persistent://public/default/b", "persistent://public/default/a"])
    'c7559e98'
    """
    in_order = sorted(names, key=lambda name: name.encode("utf-16-be"))  # as Java orders strings
    return int(crc32c(",".join(in_order).encode())).to_bytes(4, "little").hex()
