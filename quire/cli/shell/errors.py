"""Errors of the shell's commands. Each is one line on standard error, and an exit code."""

from __future__ import annotations

from typing import Final

from quire.servers.errors import CliError

FAILED: Final = 255
"""Exit code of the original (-1) for a failed or invalid command."""
REFUSED: Final = 1
"""Exit code of the original for a refused command that has changed nothing."""


class ShellError(CliError):
    """The command failed. Permanent: the message has the remedy."""

    code: int = FAILED


class UsageError(ShellError):
    """The command line is invalid. Permanent; nothing was done."""


class BothDumpAndRestoreError(UsageError):
    """`ledgermetadata` was called with both dump and restore, for which the original has an exit code of its own."""

    code = 254


class RefusedError(ShellError):
    """The command would damage data in use, or has the wrong target, or was not confirmed. Nothing was done."""

    code = REFUSED
