"""A topic that is being loaded, and the callers that want it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import trio

from broker.errors import BrokerError, ServiceNotReadyError
from broker.topics.topic import Topic

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
