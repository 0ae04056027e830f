"""Why a command of the shell did not do its work. Each is one line on standard error, and an exit code."""

from __future__ import annotations

from typing import Final

from quire.servers.errors import CliError

FAILED: Final = 255
"""What the original answers (as -1) when a command fails, or cannot be understood."""
REFUSED: Final = 1
"""What it answers when a command would not do what was asked, and nothing has changed."""


class ShellError(CliError):
    """The command failed. Final: the message says what to do."""

    code: int = FAILED


class UsageError(ShellError):
    """The command line cannot be understood. Final; nothing was done."""


class BothDumpAndRestoreError(UsageError):
    """`ledgermetadata` was asked to dump and to restore at once. The original has a code of its own for it."""

    code = 254


class RefusedError(ShellError):
    """What was asked would hurt data in use, or something else than was meant, or was not confirmed. Nothing was done."""

    code = REFUSED
