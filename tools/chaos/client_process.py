"""Client processes of a chaos run, started, read from and ended; see `clients`."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.chaos.errors import ChaosError
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.security import CLIENT


class Client:
    """One of the two client processes."""

    def __init__(self, what: str, cluster: LocalCluster, folder: Path, *, topics: int, rate: float) -> None:
        self.what = what
        self.history = folder / f"{what}.history"
        self.log = folder / f"{what}.log"
        self.errors = folder / f"{what}.err"
        command = [sys.executable, "-m", "tools.chaos.clients", what, "--url", cluster.service_url]
        command += ["--out", str(self.history), "--log", str(self.log)]
        command += ["--topics", str(topics), "--rate", str(rate)]
        if cluster.security is not None:  # as files, because everybody sees command lines
            command += ["--trust-file", str(cluster.security.trust)]
            command += ["--token-file", str(cluster.security.token(CLIENT))]
        with open(self.errors, "wb") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, cwd=Path(__file__).parents[2]
            )
        self._text = b""
        self.figures: dict[str, int] = {}
        self.is_ready = False
        self.is_over = False

    def fileno(self) -> int:
        """Return the descriptor of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def poll(self) -> None:
        """Read its output. Raises ChaosError if it ended by itself."""
        while select.select([self], [], [], 0)[0]:
            piece = os.read(self.fileno(), 65536)
            if not piece:
                if not self.is_over:
                    raise ChaosError(f"the clients that {self.what} ended: {self.errors.read_text()[-2000:]}")
                return
            self._text += piece
            *lines, self._text = self._text.split(b"\n")
            for line in lines:
                self._take(line.decode())

    def _take(self, line: str) -> None:
        words = line.split()
        self.is_ready |= words == ["ready"]
        self.is_over |= bool(words) and words[0] == "end"
        for word in words:
            name, equals, value = word.partition("=")
            if equals:
                self.figures[name] = int(value)

    def stop(self) -> None:
        """Request its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"stop\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Make sure that it has ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def listen(clients: Sequence[Client], seconds: float) -> None:
    """Read their output, waiting at most so long. Raises ChaosError if one ended by itself."""
    select.select([client for client in clients if not client.is_over], [], [], seconds)
    for client in clients:
        client.poll()
