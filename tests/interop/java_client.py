"""Pulsar's own Java client: the programs of tests/interop/pulsar as child processes."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from quire.servers.zookeeper.process import find_java

FORMER: Final = "4.0"
"""Client of long-term support. The programs are compiled for the current one."""
CURRENT: Final = "4.2"
STORIES: Final = (
    "access-modes",
    "batch-index-acks",
    "chunks",
    "delays",
    "end-of-topic",
    "patterns",
    "priorities",
    "read-compacted",
    "redelivery",
    "retry-letters",
    "schemas-auto",
    "schemas-key-value",
    "schemas-none",
    "schemas-primitive",
    "schemas-protobuf",
    "schemas-refused",
    "schemas-structs",
    "schemas-versions",
    "seeks",
    "sticky-ranges",
    "table-views",
)
"""Stories that the program `Stories` tells, by name."""
_FAST = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def command(program: str, *arguments: str, client: str = CURRENT) -> list[str]:
    """Return the command of a program."""
    assert "QUIRE_INTEROP_PULSAR" in os.environ, "run this by scripts/test --interop"
    made = os.environ["QUIRE_INTEROP_PULSAR"]
    former = f"{made}/lib-{FORMER}/*:" if client == FORMER else ""
    return [find_java(), *_FAST, "-cp", f"{made}/classes:{former}{made}/lib/*", program, *arguments]


def run(program: str, *arguments: str, client: str = CURRENT, seconds: float) -> str:
    """Return the lines of a program; it must have ended with 0."""
    done = subprocess.run(
        command(program, *arguments, client=client),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
