"""What can keep a command from doing its work. Each is told in one line, without a traceback."""

from __future__ import annotations

from typing import ClassVar


class CliError(Exception):
    """Root: catching it catches every failure of the package. Final: the message says what to do."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""


class InternalError(CliError):
    """A mistake of the program in a callback. Final: start the server again, and report the traceback that its log has."""


class DataDirectoryError(CliError):
    """The data directory is in use, is of a newer version, or holds something else."""


class PortError(CliError):
    """A port cannot be listened on: it is taken, or is not this user's to take."""
