"""Errors that end a command. Each is printed in one line, without a traceback."""

from __future__ import annotations

from collections.abc import Iterator


class CliError(Exception):
    """Root: catching it catches every failure of the package. Permanent: the message has the remedy."""


class InternalError(CliError):
    """Internal error in a callback. Permanent: restart the server, and report the traceback in its log."""


class DataDirectoryError(CliError):
    """The data directory is in use, is of a newer version, or holds something else."""


class PortError(CliError):
    """A port cannot be listened on: it is taken, or is not this user's to take."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, and in the groups in it; or the one."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error
