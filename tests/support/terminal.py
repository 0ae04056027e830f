"""A command of `quire` in a pseudo terminal, with real keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

WITHIN_S = 30.0


class Terminal:
    """A command in a pseudo terminal of 24 lines."""

    def __init__(self, *words: str) -> None:
        self.parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 150, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "24"}
        command = [sys.executable, "-m", "quire.cli.main", *words]
        self.process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment)
        os.close(child)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.parent)

    def press(self, keys: str) -> None:
        os.write(self.parent, keys.encode())

    def shows(self, pattern: str) -> str:
        """Wait for a picture that is drawn from now on; return it."""
        drawn, deadline = "", time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self.parent], [], [], 0.2)
            if readable:
                try:
                    drawn += os.read(self.parent, 65536).decode(errors="replace")
                except OSError:
                    break
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
            if re.search(pattern, text, re.DOTALL):
                return text
        raise AssertionError(f"no picture with {pattern!r}: {drawn[-3000:]!r}")
