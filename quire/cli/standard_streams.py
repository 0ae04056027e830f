"""Standard streams of a process that was started without some of them."""

from __future__ import annotations

import os
import sys


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
