"""scripts/examples/replicated_wal: the leader is killed, the follower takes over, and no line is lost, doubled or
changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.bookies import BookieCluster, cluster

pytestmark = pytest.mark.cluster
SCRIPT = Path(__file__).parents[2] / "scripts/examples/replicated_wal.py"
PATIENCE_S = 30.0


class Member:
    """One process of the log."""

    def __init__(self, bookies: BookieCluster, role: str, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.wal"
        self._out = folder / f"{name}-{role}.out"
        with open(self._out, "wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), bookies.uri, role, "--file", str(self.file)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
            )

    def feed(self, lines: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(lines)
        self.process.stdin.flush()

    def said(self) -> str:
        return self._out.read_text()

    def safe(self) -> int:
        """Return the number of lines that it reported as safe, or as part of its copy."""
        return max(map(int, re.findall(r"^(?:safe|has) (\d+)$", self.said(), re.MULTILINE)), default=0)

    def until(self, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.said(), re.MULTILINE)):
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.said()}"
            time.sleep(0.01)
        return found.group(0)

    def until_safe(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.safe() < count:
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.005)

    def kill(self) -> None:
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):  # what was not sent yet
            self.process.stdin.close()


def lines(first: int, count: int) -> bytes:
    return b"".join(
        b"%d %s\n" % (each, bytes([97 + each % 26]) * (each * 31 % 200)) for each in range(first, first + count)
    )


def test_a_follower_takes_over_from_a_killed_leader_and_is_equal_byte_for_byte(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as bookies:
        members = []
        try:
            leader = Member(bookies, "lead", tmp_path, "one")
            members.append(leader)
            leader.until("^leading from=0")
            follower = Member(bookies, "follow", tmp_path, "two")
            members.append(follower)
            for first in range(0, 2000, 20):
                leader.feed(lines(first, 20))
            leader.until_safe(1000)
            leader.kill()
            told = leader.safe()
            follower.until("^has")
            follower.kill()
            new_leader = Member(bookies, "lead", tmp_path, "two")
            members.append(new_leader)
            start = int(new_leader.until(r"^leading from=\d+").partition("=")[2])
            assert told <= start <= 2000
            assert new_leader.file.read_bytes() == lines(0, start)
            new_leader.feed(lines(start, 50))
            new_leader.until_safe(start + 50)
            # The first one comes back as a follower, with what it had, and becomes equal.
            again = Member(bookies, "follow", tmp_path, "one")
            members.append(again)
            assert new_leader.process.stdin is not None
            new_leader.process.stdin.close()
            assert new_leader.process.wait(PATIENCE_S) == 0
            again.until(rf"^has {start + 50}$")
            assert again.file.read_bytes() == new_leader.file.read_bytes() == lines(0, start + 50)
        finally:
            for member in members:
                member.kill()


def test_a_leader_that_was_only_asleep_is_fenced_and_says_so(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as bookies:
        old = Member(bookies, "lead", tmp_path, "one")
        new = None
        try:
            old.until("^leading from=0")
            old.feed(lines(0, 10))
            old.until_safe(10)
            os.kill(old.process.pid, signal.SIGSTOP)
            new = Member(bookies, "lead", tmp_path, "two")
            new.until("^leading from=10 ")
            old.feed(lines(100, 10))
            os.kill(old.process.pid, signal.SIGCONT)
            assert old.process.wait(PATIENCE_S) == 1
            assert "another writer" in old.said().lower() or "fenced" in old.said()
            new.feed(lines(10, 10))
            new.until_safe(20)
            assert new.file.read_bytes() == lines(0, 20)
            assert old.file.read_bytes() == lines(0, 10)
        finally:
            for member in (old, new):
                if member is not None:
                    member.kill()
