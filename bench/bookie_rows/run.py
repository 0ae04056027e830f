"""Common parts of the rows of `scripts/bench bookie`: where they run, the figures they find, and help with files and
metadata."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import trio

from bench.bookies import Cluster, cluster
from quire.metadata import ledger_codec
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata
from quire.metadata.ledgers import ledger_path
from quire.metadata.store import Create
from quire.metadata.zookeeper.store import ZooKeeperConfig, open_store
from quire.wire.bookkeeper.entry import DigestType
from quire.world.real import real_world

QUIRE, APACHE = "quire", "apache"
TOGETHER = 500
"""Ledgers whose metadata is created in one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Bound of a figure: of Quire's divided by Apache's, or of Quire's alone."""

    limit: float
    better: Literal["more", "less"]
    alone: bool = False

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.better == "more" else value <= self.limit


@dataclass(slots=True, kw_only=True)
class Row:
    """A figure of both kinds of bookie, in each round."""

    title: str
    unit: str
    bound: Bound
    found: dict[str, list[float]] = field(default_factory=dict)

    def add(self, kind: str, value: float) -> None:
        self.found.setdefault(kind, []).append(value)

    def median(self, kind: str) -> float | None:
        return statistics.median(self.found[kind]) if self.found.get(kind) else None

    def spread(self, kind: str) -> float:
        """Return how far the rounds are apart: (most - least) / median."""
        values = self.found[kind]
        middle = statistics.median(values)
        return (max(values) - min(values)) / middle if middle else 0.0

    @property
    def judged(self) -> float | None:
        """Return the figure that the bound is for; None if there is nothing to compare with."""
        ours, theirs = self.median(QUIRE), self.median(APACHE)
        if self.bound.alone or ours is None:
            return ours
        return ours / theirs if theirs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the benchmark: its folder, its ZooKeeper, and the original's class path, None to run Quire alone."""

    folder: Path
    zookeeper_port: int
    classes: str | None
    rounds: int
    say: Callable[[str], None]

    @contextmanager
    def clusters(self, name: str, ours: dict[str, object], theirs: dict[str, object] | None) -> Iterator[list[Cluster]]:
        """Run a bookie of each kind with these settings; without `theirs` of Quire alone."""
        with ExitStack() as stack:
            port = self.zookeeper_port
            groups = [stack.enter_context(cluster(f"{QUIRE}-{name}", self.folder, port, 1, conf=ours))]
            if self.classes is not None and theirs is not None:
                other = cluster(f"{APACHE}-{name}", self.folder, port, 1, conf=theirs, classes=self.classes)
                groups.append(stack.enter_context(other))
            yield groups

    def create_metadata(self, group: Cluster, ledgers: Iterable[int]) -> None:
        """Create open ledgers with these ids, so that garbage collection keeps their entries."""
        trio.run(self._create, group, list(ledgers))

    async def _create(self, group: Cluster, ledgers: list[int]) -> None:
        metadata = LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            digest_type=DigestType.DUMMY,  # the generator computes none
            fragments=(Fragment(0, (group.bookies[0].id,)),),
        )
        value = ledger_codec.encode(metadata)
        store = await open_store(real_world(), ZooKeeperConfig(servers=(("127.0.0.1", self.zookeeper_port),)))
        try:
            for start in range(0, len(ledgers), TOGETHER):
                await store.multi(
                    [
                        Create(path=ledger_path(f"/{group.name}", ledger_id), value=value, make_parents=True)
                        for ledger_id in ledgers[start : start + TOGETHER]
                    ]
                )
        finally:
            await store.aclose()


def p99(times_ms: list[float]) -> float:
    """Return the time that 99 % do not exceed.

    >>> p99([float(each) for each in range(1, 201)])
    198.0
    """
    return sorted(times_ms)[max(0, -(-len(times_ms) * 99 // 100) - 1)]


@contextmanager
def beside(program: str, name: str) -> Iterator[None]:
    """Run a Python program in a process of its own, from its first line of output to the end of the block.

    RuntimeError if it ended by itself."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"the {name} has failed")
        finally:
            process.terminate()


def kind_of(group: Cluster) -> str:
    return APACHE if group.bookies[0].classes is not None else QUIRE


def drop_page_cache(folder: Path) -> None:
    """Make the kernel drop the clean pages of every file in the folder."""
    os.sync()
    drop_pages([path for path in folder.rglob("*") if path.is_file()])


def drop_pages(files: Iterable[Path]) -> None:
    """Make the kernel drop the clean pages of these files, if they still exist."""
    for path in files:
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
