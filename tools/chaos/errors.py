"""Errors that end a chaos run."""

from __future__ import annotations


class ChaosError(Exception):
    """The run cannot continue, or proves nothing. The message has the reason."""
