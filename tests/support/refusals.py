"""Calls that must be refused."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest


async def raises(
    error: type[Exception] | tuple[type[Exception], ...], call: Awaitable[object], match: str | None = None
) -> None:
    """Await a call that must raise this error, with a text that the pattern `match` finds."""
    with pytest.raises(error, match=match):
        await call
