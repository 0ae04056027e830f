"""Patches of classes and modules of the servers: to plant bugs, and to observe internal events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TypeAlias

Patch: TypeAlias = tuple[type | ModuleType, str, object]
"""(class or module, name of what is replaced in it, by what)"""


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """Apply the patches while entered, then restore the originals."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
