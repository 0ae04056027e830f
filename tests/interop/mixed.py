"""Quire's bookies and one of the original's in one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.java import ApacheBookie
from tests.support.bookies import BookieCluster
from tests.support.zookeeper import shared_server


@contextmanager
def mixed_bookies(folder: Path, count: int) -> Iterator[tuple[BookieCluster, ApacheBookie]]:
    """Run `count` of Quire's bookies and one of the original's; check the logs of Quire's at the end."""
    ours = BookieCluster(folder, shared_server()).initialize()
    theirs = ApacheBookie(folder / "apache", ours.uri)
    try:
        theirs.launch()
        ours.add(count)
        theirs.wait_ready()
        yield ours, theirs
    finally:
        theirs.kill()
        ours.close()
    for bookie in ours.bookies:
        bookie.check_log()
