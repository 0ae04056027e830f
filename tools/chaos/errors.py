"""Why a chaos run ends."""

from __future__ import annotations


class ChaosError(Exception):
    """The run cannot go on, or says nothing. The message says why."""
