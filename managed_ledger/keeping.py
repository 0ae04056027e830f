"""Property of a log that is being restored from a backup: no ledger of it is trimmed, since its subscriptions, which
hold entries back, come last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

RESTORING: Final = "quire.restoring"
"""Name of the property; its value names the backup."""


def restored_from(properties: Iterable[tuple[str, str]]) -> str:
    """Return the backup that a log is being restored from; "" if it is not being restored.

    >>> restored_from((("a", "b"), ("quire.restoring", "c0ffee"))), restored_from(())
    ('c0ffee', '')
    """
    return next((value for name, value in properties if name == RESTORING), "")
