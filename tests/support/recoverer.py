"""A process that recovers one ledger and may be killed meanwhile: `python -m tests.support.recoverer URI LEDGER`.

It prints `ready` when it is connected, waits for a line on its standard input, recovers and prints `closed LAST_ENTRY`.
"""

from __future__ import annotations

import subprocess
import sys

import trio

from quire.ledger import open_client
from quire.world.real import real_world


class Recoverer:
    """A process that recovers a ledger."""

    def __init__(self, uri: str, ledger_id: int) -> None:
        command = [sys.executable, "-m", "tests.support.recoverer", uri, str(ledger_id)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self) -> None:
        """Wait until it is connected, and let it recover."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        with self._process:
            self._process.kill()

    def last_entry(self) -> int:
        """Return the last entry of the ledger that it closed, after waiting for it."""
        with self._process:
            assert self._process.stdout is not None
            said, _, number = self._process.stdout.readline().partition(" ")
            assert said == "closed"
            return int(number)


async def main(uri: str, ledger_id: int) -> None:
    async with open_client(real_world(), uri) as client:
        print("ready", flush=True)
        sys.stdin.readline()
        reader = await client.open(ledger_id, recover=True)
        print("closed", reader.last_entry_id, flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]))
