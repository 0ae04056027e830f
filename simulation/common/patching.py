"""Puts other functions into classes and modules of the servers for a while: to plant bugs, and to hear what does not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TypeAlias

Patch: TypeAlias = tuple[type | ModuleType, str, object]
"""(class or module, name of what is replaced in it, by what)"""


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    """Within it the patches hold; then what was there before is put back."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
