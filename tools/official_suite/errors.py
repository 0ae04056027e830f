"""Errors of scripts/official-suite."""

from __future__ import annotations


class SuiteError(Exception):
    """The suite cannot run; the message has the reason."""
