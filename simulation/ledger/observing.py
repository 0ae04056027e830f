"""Observation of internal events of servers and clients that are not visible at their doors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import trio

from broker.ownership.ownership import Ownership
from broker.topics.loader import TopicLoader
from broker.topics.topic import Topic
from quire.ledger.bookies.answers import Answer
from quire.ledger.context import LedgerContext
from quire.ledger.reading.last_confirmed import LastConfirmed, read_last_confirmed
from quire.ledger.recovery import recovery
from quire.ledger.recovery.recovery import Recovery
from quire.ledger.writing.appender import Appender
from quire.ledger.writing.resting import RestingAppender
from quire.ledger.writing.writer import LedgerWriter, OpenLedger
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper.entry import Buffer, Digest
from quire.wire.pulsar.names import TopicName
from simulation.common.patching import Patch, patched
from simulation.ledger.checkers import LedgerChecker, LedgerHistory
from simulation.machines.scheduler import HOST


class Observer(Protocol):
    """Receiver of events of recoveries."""

    @property
    def checker(self) -> LedgerChecker: ...

    def tell(self, host: str, name: str, /, **fields: object) -> None: ...

    def recovery_begins(self, ledger_id: int, metadata: LedgerMetadata) -> None: ...

    def recovery_fenced(self, ledger_id: int, metadata: LedgerMetadata, lac: int) -> None: ...


@contextmanager
def recoveries_observed(story: Observer) -> Iterator[None]:
    """Observe when a recovery begins to fence, when it counts the ledger as fenced, and an entry as absent."""
    name = read_last_confirmed.__name__
    ask: Callable[..., Awaitable[LastConfirmed]] = getattr(recovery, name)  # perhaps with a bug planted

    async def told(
        context: LedgerContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        digest: Digest,
        password: bytes,
        *,
        fence: bool,
    ) -> LastConfirmed:
        story.recovery_begins(ledger_id, metadata)
        found = await ask(context, ledger_id, metadata, digest, password, fence=fence)
        story.recovery_fenced(ledger_id, metadata, found.lac)
        return found

    decide = Recovery._decide

    async def decided(
        self: Recovery, entry_id: int, bookies: Sequence[str], answers: Sequence[Answer]
    ) -> memoryview | None:
        entry = await decide(self, entry_id, bookies, answers)
        if entry is None:
            story.checker.entry_denied(self._ledger_id, entry_id, bookies, self._started.ack_quorum)
        return entry

    measure = Recovery._length_at

    async def measured(self: Recovery, entry_id: int) -> int | None:
        length = await measure(self, entry_id)
        if length is None:
            story.tell(HOST.get(), "LengthMissed", ledger=self._ledger_id, first=entry_id, last=entry_id)
            story.checker.length_missed(self._ledger_id, entry_id)
        return length

    with patched(
        [(recovery, name, told), (Recovery, decide.__name__, decided), (Recovery, measure.__name__, measured)]
    ):
        yield


class WriterObserver(Observer, Protocol):
    """Receiver of events of writers and brokers."""

    def writer_made(self, writer: LedgerWriter) -> LedgerHistory: ...

    def appended(self, history: LedgerHistory, first: int, payloads: Sequence[Buffer]) -> None: ...

    def confirmed(self, history: LedgerHistory, first: int, last: int) -> None: ...

    def topic_loading(self, topic: str) -> None: ...

    def ownership_runs(self, ownership: Ownership) -> None: ...


@contextmanager
def cluster_observed(story: WriterObserver) -> Iterator[None]:
    """Observe writers of ledgers, topics about to be loaded, and the ownership of brokers.

    Appends and confirmations of writers are reported before any other part receives them."""
    histories: WeakKeyDictionary[Appender | RestingAppender, LedgerHistory] = WeakKeyDictionary()
    make, append, report = OpenLedger.__init__, LedgerWriter.append, Appender._report_confirmed
    replace = LedgerWriter._replace
    load, run = TopicLoader._open, Ownership.run

    def made(self: OpenLedger, *args: Any, **more: Any) -> None:
        make(self, *args, **more)
        if isinstance(self, LedgerWriter):
            histories[self._appender] = story.writer_made(self)

    def appended(self: LedgerWriter, payloads: Sequence[Buffer]) -> int:
        first = append(self, payloads)
        story.appended(histories[self._appender], first, payloads)
        return first

    def replaced(self: LedgerWriter, appender: Appender | RestingAppender) -> None:
        histories[appender] = histories[self._appender]
        replace(self, appender)

    def reported(self: Appender) -> None:
        history = histories.get(self)
        if history is not None and self.confirmed > self.last_confirmed:
            story.confirmed(history, self.last_confirmed + 1, self.confirmed)
        report(self)

    async def loading(self: TopicLoader, name: TopicName, *, create: bool) -> Topic:
        story.topic_loading(name.full)
        return await load(self, name, create=create)

    async def running(self: Ownership, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        story.ownership_runs(self)
        await run(self, task_status=task_status)

    patches: list[Patch] = [
        (OpenLedger, make.__name__, made),
        (LedgerWriter, append.__name__, appended),
        (LedgerWriter, replace.__name__, replaced),
        (Appender, report.__name__, reported),
        (TopicLoader, load.__name__, loading),
        (Ownership, run.__name__, running),
    ]
    with patched(patches):
        yield
