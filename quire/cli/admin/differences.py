"""Differences of two namespaces' policies (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_UNSET: Final[tuple[object, ...]] = ({}, [], "", None)


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the policies that differ, as {"policy", "first", "second"}, sorted by name.

    The name of a policy inside another one is written with a dot. None: it is not set there. A policy that is empty and
    one that is missing are the same; servers write either.
    """
    ours, theirs = dict(_flat("", first)), dict(_flat("", second))
    return [
        {"policy": key, "first": ours.get(key), "second": theirs.get(key)}
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    ]


def _flat(prefix: str, found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in found.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat += _flat(f"{name}.", value)
        elif value not in _UNSET:
            flat.append((name, value))
    return flat
