"""Calls that must be refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

Errors = type[BaseException] | tuple[type[BaseException], ...]


async def raises(error: Errors, call: Awaitable[object], match: str | None = None) -> None:
    """Await a call that must raise this error, with a text that the pattern `match` finds."""
    with pytest.raises(error, match=match):
        await call


def refuses(error: Errors, call: Callable[[], object], match: str | None = None) -> None:
    """Make a call that must raise this error, with a text that the pattern `match` finds."""
    with pytest.raises(error, match=match):
        call()
