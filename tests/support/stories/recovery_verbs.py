"""Stories of ledgers with auto recovery: all verbs together."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from autorecovery.auditing.election import election_folder, read_auditor
from autorecovery.ledger_checker import LedgerChecker
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.metadata import paths
from quire.metadata.ledger_metadata import LedgerState
from quire.metadata.store import MetadataStore
from quire.metadata.zookeeper.store import ZooKeeperConfig
from quire.world.real import real_world
from tests.support.autorecovery_process import AutoRecoveryProcess
from tests.support.bookies import BookieCluster
from tests.support.datadriven import Line
from tests.support.process import ServerProcess, start_all
from tests.support.stories.ledger_verbs import Ledger, LedgerVerbs
from tests.support.stories.payloads import check
from tests.support.stories.text import Story
from tests.support.zookeeper import opened


class LedgerStage(LedgerVerbs):
    """The verbs of bookies, disks, ledgers and auto recovery."""

    def __init__(self, shared: BookieCluster, folder: Path) -> None:
        super().__init__(shared, folder)
        self._store: MetadataStore | None = None
        self._recoveries: list[AutoRecoveryProcess] = []

    async def step_autorecovery(self, line: Line) -> None:
        """autorecovery NAME... KEY=VALUE...: processes of it."""
        made = [AutoRecoveryProcess(self.folder, self.cluster.uri, name, **line.options) for name in line.words]
        line.words.clear()
        line.options.clear()
        self._recoveries += made
        await trio.to_thread.run_sync(partial(start_all, *made))

    async def step_kill_auditor(self, line: Line) -> None:
        """kill-auditor -9: the auto recovery that is the auditor."""
        assert line.word() == "-9"
        name = await read_auditor(await self._metadata(), self.cluster.root)
        doomed = [each for each in self._recoveries if each.name == name]
        assert doomed, f"the auditor is {name}"
        await self.kill(doomed)

    async def _metadata(self) -> MetadataStore:
        if self._store is None:
            config = ZooKeeperConfig(servers=(("127.0.0.1", self.cluster.zookeeper.port),))
            self._store = await self.entered(opened(config))
        return self._store

    def process(self, name: str) -> ServerProcess:
        return next((each for each in self._recoveries if each.name == name), None) or super().process(name)

    async def step_ended(self, line: Line) -> int:
        """ended NAME -> exit code, when it has ended by itself."""
        return await trio.to_thread.run_sync(self.process(line.word()).wait_ended)

    async def is_candidate(self, line: Line) -> bool:
        """The process has a vote for the auditor. `candidate NAME no`: it has none."""
        name, wanted = line.word(), not line.words or line.word() != "no"
        store, folder = await self._metadata(), election_folder(self.cluster.root)
        votes = [await store.get(paths.join(folder, each)) for each in await store.children(folder)]
        return any(name.encode() in vote.value for vote in votes if vote is not None) == wanted

    async def is_auditor(self, line: Line) -> bool:
        """The bookie's own auto recovery is the auditor."""
        return await read_auditor(await self._metadata(), self.cluster.root) == self.bookie(line.word()).id

    async def _marks(self) -> UnderreplicatedLedgers:
        world, store = real_world(), await self._metadata()
        return UnderreplicatedLedgers(
            store, root=self.cluster.root, rng=world.rng, wall_ms=world.clock.wall_ms, owner="test"
        )

    async def step_mark(self, line: Line) -> None:
        """mark BOOKIE: its copies of the last ledger as missing."""
        ledger = next(reversed(self.ledgers.values()))
        await (await self._marks()).mark(ledger.id, [self.bookie(line.word()).id])

    async def is_nothing_marked(self, line: Line) -> bool:
        return not [each async for each in (await self._marks()).list()]

    async def is_copied(self, line: Line) -> bool:
        """Every copy of every ledger of the story is good. `copied no`: one is missing or damaged."""
        wanted = not line.words or line.word() != "no"
        return all([not await self._bad(each) for each in self.ledgers.values()]) == wanted

    async def _bad(self, ledger: Ledger) -> bool:
        checker = LedgerChecker(self.client, rng=real_world().rng)
        metadata = await self.client.read_metadata(ledger.id)
        return bool(await checker.check(ledger.id, metadata, percentage=100))

    async def step_every_copy(self, line: Line) -> None:
        """every-copy: all ledgers are closed with what was appended, their copies are good, and each entry is read."""
        for ledger in self.ledgers.values():
            metadata = await self.client.read_metadata(ledger.id)
            assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, ledger.count - 1)
            assert not await self._bad(ledger), f"a copy of ledger {ledger.id} is bad"
            await check(self.client, ledger.id, ledger.count, recover=False)

    async def end(self) -> None:
        """Kill what the story has started."""
        for each in self._recoveries:
            await trio.to_thread.run_sync(each.kill)
        if self.own is not None:
            await trio.to_thread.run_sync(self.own.close)

    def check_logs(self) -> None:
        """The logs of what the story has started have no errors that it did not announce."""
        for each in (*self._recoveries, *(() if self.own is None else self.own.bookies)):
            each.check_log()


async def play(story: Story, shared: BookieCluster, folder: Path) -> None:
    """Play a story; `shared` is the cluster of those that start no bookies."""
    stage = LedgerStage(shared, folder)
    try:
        await stage.play(story)
    finally:
        with trio.CancelScope(shield=True):
            await stage.end()
    stage.check_logs()
