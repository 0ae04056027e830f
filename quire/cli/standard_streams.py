"""Standard streams of a process that was started without some of them, or whose output has no room."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def open_missing() -> None:
    """Replace a closed standard input, output or error by /dev/null.

    Otherwise the first file or socket that is opened gets its number, and receives output for standard error; and a log
    line fails without a stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:  # another file has a lower number
                os.dup2(opened, number)
                os.close(opened)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


@contextmanager
def naming_full_disks() -> Iterator[None]:
    """Write what is in the buffer of standard output at the end.

    An output without room is one line on standard error and SystemExit(1); one whose reader has gone, SystemExit(1).
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EPIPE):
            raise
        # What is left in the buffer cannot be written either, and would be an error at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno != errno.EPIPE:  # (the reader has gone, and wants no more)
            where = "standard output" if error.filename is None else os.fsdecode(error.filename)
            text = f"{where}: {error.strerror}; what was written is not whole. Make room, and run the command again"
            print(f"quire: {text}", file=sys.stderr)
        sys.exit(1)
