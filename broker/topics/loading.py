"""A topic that is being loaded, the callers that want it, and the tasks that load."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from math import inf

import trio

from broker.context import Context
from broker.errors import BrokerError, ServiceNotReadyError
from broker.topics.topic import Topic
from quire.wire.pulsar.names import TopicName

THEN_MAX = 32
"""Callers in `then` that one topic may have: they get their answers in one step of the event loop."""


class Loading:
    """A topic that is being loaded; callers that want it wait here."""

    __slots__ = ("_done", "begun", "create", "error", "then", "topic")

    def __init__(self, create: bool) -> None:
        self.create = create
        """True if it may be created when it does not exist."""
        self.begun = trio.current_time()
        self.topic: Topic | None = None
        self.error: BrokerError | None = None
        self.then: list[tuple[float, Callable[[Topic | BrokerError], None]]] = []
        """Called with the result, and since when they wait. Of thousands of topics that are loaded at a time, most have
        no other caller."""
        self._done: trio.Event | None = None

    @property
    def done(self) -> trio.Event:
        """Set when the topic is loaded, or cannot be."""
        if self._done is None:
            self._done = trio.Event()
            if self.topic is not None or self.error is not None:
                self._done.set()
        return self._done

    def settle(self) -> None:
        if self._done is not None:
            self._done.set()
        self.answer(self.topic or self.error or ServiceNotReadyError("loading was interrupted"))

    def answer(self, result: Topic | BrokerError, begun_max: float = inf) -> None:
        """Give their answer to the callers that wait by `then`, at least since `begun_max`."""
        waiting = self.then
        self.then = [each for each in waiting if each[0] > begun_max]
        for begun, then in waiting:
            if begun <= begun_max:
                then(result)


class Loaders:
    """Tasks that load topics: as many as have to wait for something, and one more.

    Of thousands of topics that are asked for at a time, most are loaded from memory in one step, for which a task each
    would be dear. So a task goes on with the next topic, and only if it has to wait, another one takes over."""

    def __init__(self, context: Context, load: Callable[[TopicName, Loading], Awaitable[None]]) -> None:
        """Take the function that loads a topic. It raises nothing but a cancellation."""
        self._context = context
        self._load = load
        self._left: deque[tuple[TopicName, Loading]] = deque()
        self._another = False
        """True while a task is started that does not run yet."""

    def put(self, name: TopicName, loading: Loading) -> None:
        """Load the topic soon."""
        self._left.append((name, loading))
        self._see_to_another()

    def _see_to_another(self) -> None:
        if not self._another:
            self._another = True
            self._context.nursery.start_soon(self._run, name="load topics")

    async def _run(self) -> None:
        self._another = False
        task = trio.lowlevel.current_task()
        while self._left:
            name, loading = self._left.popleft()
            if self._left:
                self._see_to_another()
            task.name = f"load {name.full}"
            await self._load(name, loading)
