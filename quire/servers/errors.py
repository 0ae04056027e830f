"""Errors that end a command. Each is printed in one line, without a traceback."""

from __future__ import annotations

from typing import ClassVar


class CliError(Exception):
    """Root: catching it catches every failure of the package. Permanent: the message has the remedy."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class InternalError(CliError):
    """Internal error in a callback. Permanent: restart the server, and report the traceback in its log."""


class DataDirectoryError(CliError):
    """The data directory is in use, is of a newer version, or holds something else."""


class PortError(CliError):
    """A port cannot be listened on: it is in use, or this user has no permission."""
