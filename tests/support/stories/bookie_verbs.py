"""Steps that start, stop, kill and damage bookies."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from bookie.db_ledger_storage.entry_log_format import HEADER_LENGTH
from bookie.journal.format import HEADER_SIZE
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster
from tests.support.datadriven import Line
from tests.support.process import ServerProcess, start_all
from tests.support.stories.payloads import payload
from tests.support.stories.text import Stage
from tests.support.zookeeper import shared_server

PLACES = ("first", "second", "third")


class BookieVerbs(Stage):
    """The cluster that the stories of a module share, until `bookies` starts one of the story's own.

    Bookies are called `bookie-0`, `bookie-1`, ..., or by their place in the ensemble of the last ledger that was
    created: `first`, `second`, `third`; `all` are those of the cluster.
    """

    def __init__(self, shared: BookieCluster, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.own: BookieCluster | None = None
        self.members: list[str] = []
        """Bookie ids of `first`, `second` and `third`."""
        self._shared = shared

    @property
    def cluster(self) -> BookieCluster:
        return self.own or self._shared

    def processes(self, line: Line) -> list[ServerProcess]:
        """Take the words that are left: names of processes."""
        names, line.words = line.words, []
        return [each for name in names for each in (self.cluster.bookies if name == "all" else [self.process(name)])]

    def process(self, name: str) -> ServerProcess:
        """Return the process of that name: a bookie."""
        return self.bookie(name)

    def bookie(self, name: str) -> BookieProcess:
        if name in PLACES:
            return self.cluster.by_id(self.members[PLACES.index(name)])
        return self.cluster.bookies[int(name.removeprefix("bookie-"))]

    async def step_bookies(self, line: Line) -> None:
        """bookies COUNT KEY=VALUE...: a cluster of the story's own."""
        self.own = BookieCluster(self.folder, shared_server())
        await trio.to_thread.run_sync(self.own.initialize)
        await self.step_more_bookies(line)

    async def step_more_bookies(self, line: Line) -> None:
        """more-bookies COUNT KEY=VALUE...: of the same cluster."""
        conf = dict(line.options)
        line.options.clear()
        await trio.to_thread.run_sync(self.cluster.add, line.number(), conf)

    async def step_start(self, line: Line) -> None:
        await trio.to_thread.run_sync(partial(start_all, *self.processes(line)))

    async def step_stop(self, line: Line) -> int:
        """stop BOOKIE -> exit code."""
        self.hurt_at = trio.current_time()
        bookie = self.bookie(line.word())
        return await trio.to_thread.run_sync(bookie.stop)

    async def step_kill(self, line: Line) -> None:
        """kill -9 BOOKIE...: all at once."""
        assert line.word() == "-9"
        await self.kill(self.processes(line))

    async def step_lose(self, line: Line) -> None:
        """lose BOOKIE: SIGKILL, and its disks are empty."""
        bookie = self.bookie(line.word())
        await trio.to_thread.run_sync(bookie.lose_for_good)

    async def step_pause(self, line: Line) -> None:
        self.hurt_at = trio.current_time()
        for each in self.processes(line):
            await trio.to_thread.run_sync(each.pause)

    async def step_resume(self, line: Line) -> None:
        for each in self.processes(line):
            each.resume()

    async def step_refused(self, line: Line) -> int:
        """refused BOOKIE WORDS... -> exit code: it ends by itself, was never ready, and says the words."""
        bookie, words = self.bookie(line.word()), rest(line)
        code, said = await trio.to_thread.run_sync(bookie.refused)
        assert words.lower() in said.lower(), said
        assert " ready bookie=" not in said, said
        return code

    async def step_announce(self, line: Line) -> None:
        """announce BOOKIE WORDS...: errors in its log."""
        self.bookie(line.word()).announced.append(rest(line))

    # --- disks

    async def step_remove(self, line: Line) -> None:
        """remove BOOKIE PATTERN: files or folders of its folder."""
        bookie = self.bookie(line.word())
        found = list(bookie.folder.glob(line.word()))
        assert found, "there is no such file"
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    async def step_disks(self, line: Line) -> None:
        """disks BOOKIE away, disks BOOKIE like OTHER, disks BOOKIE back: its own again."""
        bookie, how = self.bookie(line.word()), line.word()
        other = self.bookie(line.word()) if how == "like" else None
        for name in ("journal", "ledgers"):
            place, kept = bookie.folder / name, self.folder / f"{bookie.folder.name}-{name}"
            if how == "away":
                place.rename(kept)
                continue
            shutil.rmtree(place, ignore_errors=True)
            if other is not None:
                shutil.copytree(other.folder / name, place)
            else:
                kept.rename(place)

    async def step_flip_journal(self, line: Line) -> None:
        """flip-journal BOOKIE entry=N: a bit of the payload."""
        bookie, entry_id = self.bookie(line.word()), line.option_number("entry")
        (journal,) = bookie.folder.glob("journal/current/*.txn")
        with _changed(journal) as data:
            data[data.index(payload(entry_id), HEADER_SIZE)] ^= 0x04

    async def step_damage_log(self, line: Line) -> None:
        """damage-log BOOKIE entry=N how=..."""
        bookie, entry_id = self.bookie(line.word()), line.option_number("entry")
        (path,) = bookie.folder.glob("ledgers/current/*.log")
        with _changed(path) as data:
            place = data.index(payload(entry_id), HEADER_LENGTH)
            match line.option("how"):
                case "flipped-bit":  # of the entry id, eight bytes of it after eight of the ledger's id
                    data[data.rindex(entry_id.to_bytes(8, "big"), 0, place) + 7] ^= 0x10
                case "zeroed-block":
                    data[place - 512 : place + 512] = bytes(1024)
                case "misdirected-write":
                    start = data.index(payload(10), HEADER_LENGTH)
                    data[place - 36 : place + 100] = data[start - 36 : start + 100]
                case _:
                    raise line.unknown()

    async def step_damage_logs(self, line: Line) -> None:
        """damage-logs BOOKIE: a byte in every kilobyte of what it keeps."""
        bookie = self.bookie(line.word())
        for path in (bookie.folder / "ledgers/current").glob("*.log"):
            with _changed(path) as data:
                for offset in range(HEADER_LENGTH + 2000, len(data) - 2000, 1024):
                    data[offset] ^= 1

    async def step_limit_files(self, line: Line) -> None:
        """limit-files BOOKIE BYTES: no file grows beyond it, so that writes fail as on a full disk. `no` ends that."""
        bookie, size = self.bookie(line.word()), line.word()
        assert bookie.process is not None
        _, hard = resource.prlimit(bookie.process.pid, resource.RLIMIT_FSIZE)
        limit = resource.RLIM_INFINITY if size == "no" else int(size)
        resource.prlimit(bookie.process.pid, resource.RLIMIT_FSIZE, (limit, hard))


def rest(line: Line) -> str:
    """Take all words that are left, as a text."""
    words, line.words = " ".join(line.words), []
    return words


@contextmanager
def _changed(path: Path) -> Iterator[bytearray]:
    data = bytearray(path.read_bytes())
    yield data
    path.write_bytes(data)
