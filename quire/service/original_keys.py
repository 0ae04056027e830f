"""Facts about the configuration keys of published versions of Pulsar and BookKeeper: names, versions, defaults.

The data file original_keys.txt is made by scripts/original_keys.py out of the originals' jars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

FILE: Final = Path(__file__).with_name("original_keys.txt")

PULSAR: Final = "pulsar"
BOOKKEEPER: Final = "bookkeeper"


class OriginalKey(NamedTuple):
    """A key of one product. `name` may end in a star, for any ending."""

    name: str
    product: str
    first_version: str
    last_version: str
    defaults: tuple[str, ...]
    """Defaults of all versions, the newest last. Empty if there is none, or if it is computed at run time."""
    shipped: tuple[str, ...]
    """Other values in the configuration files that came with those versions."""


@cache
def original_keys() -> Mapping[str, tuple[OriginalKey, ...]]:
    """Return the keys by name; a name that both products have is there with both."""
    found: dict[str, tuple[OriginalKey, ...]] = {}
    for line in FILE.read_text(encoding="ascii").splitlines():
        if line and not line.startswith("#"):
            name, product, versions, defaults, shipped, *_ = [*line.split("\t"), "", ""]
            first, last = versions.split(" ")
            key = OriginalKey(name, product, first, last, _values(defaults), _values(shipped))
            found[name] = (*found.get(name, ()), key)
    return MappingProxyType(found)


def _values(text: str) -> tuple[str, ...]:
    return tuple(text.split(" | ")) if text else ()


@cache
def _beginnings() -> tuple[str, ...]:
    return tuple(name[:-1] for name in original_keys() if name.endswith("*"))


def is_original_key(name: str) -> bool:
    """Return whether Pulsar or BookKeeper has a key of this name."""
    return name in original_keys() or name.startswith(_beginnings())


def keys_of_product(product: str) -> Iterator[OriginalKey]:
    """Return the keys of pulsar or of bookkeeper, in the order of their names."""
    return (key for keys in original_keys().values() for key in keys if key.product == product)


def is_original_value(name: str, value: str) -> bool:
    """Return whether `value` asks for nothing: it is empty, a default of the originals, or in the files that came with
    them."""
    keys = original_keys().get(name, ())
    return value == "" or any(same_value(value, each) for key in keys for each in (*key.defaults, *key.shipped))


def same_value(one: str, other: str) -> bool:
    """Return whether values are equal to a program that reads them.

    >>> same_value("1.0", "1"), same_value("True", "true"), same_value("a, b", "a,b"), same_value("a", "b")
    (True, True, True, False)
    """
    try:
        return float(one) == float(other)
    except ValueError:
        return _plain(one) == _plain(other)


def _plain(value: str) -> str:
    return ",".join(part.strip() for part in value.lower().split(","))
