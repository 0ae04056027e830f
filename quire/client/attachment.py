"""Common part of readers, producers and subscriptions: attachment to the broker that owns a topic, renewed after every
loss."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import trio

from quire.client.connection import Connection
from quire.client.connections import Connections
from quire.client.errors import ClientError, ClosedError, ServerRefusedError, ServiceUnavailableError
from quire.client.options import ClientOptions
from quire.client.retrying import client_backoff, final, gave_up, retrying
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.backoff import Backoff
from quire.world.doors import Rng, World

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""Time a close waits for the broker's answer."""


@dataclass(slots=True)
class Home:
    """Common parts that a client gives to everything it opens."""

    world: World
    options: ClientOptions
    connections: Connections
    last_id: int = 0

    @property
    def rng(self) -> Rng:
        return self.world.rng

    def next_id(self) -> int:
        """Return an id for a consumer or producer, unique in the client, and so in each connection too."""
        self.last_id += 1
        return self.last_id


class Attachment(ABC):
    """One reader, producer or subscription. `live` has to run in a task; a subclass implements how to attach.

    While it is not attached, callers wait, each for `operation_timeout_s` after the loss or after their call, whichever
    is later.
    """

    def __init__(self, home: Home, topic: str, what: str) -> None:
        self.topic = topic
        """Full name of its topic."""
        self._home = home
        self._options = home.options
        self._what = what
        """Description for errors: its kind, and its topic."""
        self._connection: Connection | None = None
        """Connection to which it is attached, while it is."""
        self._cause: ClientError | None = None
        """Reason why it is not attached."""
        self._failure: ClientError | None = None
        """Reason why it never will be again."""
        self._lost_at = trio.current_time()
        self._gone = trio.Event()
        self._changed = trio.Event()
        self._scope = trio.CancelScope()

    def __str__(self) -> str:
        return self._what

    # Implemented by subclasses

    @abstractmethod
    async def _attach(self, connection: Connection) -> None:
        """Register with the connection, and with its broker. Raises ClientError. `_detach` undoes an incomplete
        attempt."""

    @abstractmethod
    def _detach(self, connection: Connection) -> None:
        """Unregister from the connection, which then reports no more events."""

    @abstractmethod
    def _close(self, request_id: int) -> pb.BaseCommand:
        """Return the command that ends it at the broker."""

    # Life

    async def live(self) -> None:
        """Attach, and attach again after losses, until closed or refused permanently."""
        backoff = client_backoff(self._options, self._home.rng)
        try:
            with self._scope:
                while self._failure is None:
                    await self._attach_once(backoff)
                    if self._failure is None:
                        await trio.sleep(backoff.next())
        finally:
            if self._failure is None:
                self._failure = ClosedError(f"{self._what} is closed")
            self._wake()

    async def _attach_once(self, backoff: Backoff) -> None:
        """Try to attach once; on success, return when the attachment is lost."""
        self._gone = trio.Event()
        connection: Connection | None = None
        attached = False
        try:
            with trio.fail_after(self._options.operation_timeout_s):
                connection = await self._home.connections.of_topic(self.topic)
                await self._attach(connection)
            attached = True
            if not self._gone.is_set():
                backoff.reset()
                self._attached_to(connection)
                await self._gone.wait()
        except trio.TooSlowError:
            self._cause = ServiceUnavailableError(f"no answer in {self._options.operation_timeout_s:g} s")
        except ClientError as error:
            self._cause = error
            if not error.passing:
                self._fail(final(error, self._what))
        finally:
            self._connection = None
            if connection is not None:
                self._detach(connection)
                if not attached:
                    connection.tell(self._close)  # the broker may have executed it all the same
        log.debug("%s is not attached: %s", self._what, self._cause)
        self._lost_at = trio.current_time()
        self._wake()

    def _attached_to(self, connection: Connection) -> None:
        """Let callers use the connection from now on."""
        self._connection = connection
        self._cause = None
        self._wake()

    def lost(self, error: ClientError) -> None:
        """Detach: the connection ended, the broker closed this attachment, or the broker violates the protocol."""
        self._connection = None
        self._cause = error
        self._lost_at = trio.current_time()
        self._gone.set()
        self._wake()

    def _fail(self, error: ClientError) -> None:
        """Fail permanently: every call raises `error` from now on."""
        if self._failure is None:
            self._failure = error
        self._gone.set()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def close(self) -> None:
        """Close it here and at the broker, waiting briefly for the broker's answer. A second call has no effect."""
        connection = self._connection
        self._fail(ClosedError(f"{self._what} is closed"))
        self._connection = None
        self._scope.cancel()
        if connection is None:
            await trio.lowlevel.checkpoint()
            return
        self._detach(connection)
        connection.look_again()
        with trio.move_on_after(CLOSE_TIMEOUT_S), suppress(ClientError):
            await connection.request(self._close)

    # Used by callers

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _attached(self) -> Connection:
        """Wait, without a deadline, until it is attached; raise the reason if it never will be."""
        while True:
            self._check()
            if self._connection is not None:
                return self._connection
            await self._changed.wait()

    async def opened(self) -> None:
        """Wait until it is attached for the first time. Raises ClientError, after which it cannot be used."""
        try:
            with trio.move_on_after(self._options.operation_timeout_s):
                await self._attached()
                return
            raise self._gave_up()
        except BaseException:
            self._scope.cancel()
            raise

    def _gave_up(self) -> ClientError:
        return gave_up(self._cause, self._what, self._options.operation_timeout_s)

    async def _request(self, make: Callable[[int], pb.BaseCommand]) -> pb.BaseCommand:
        """Send a request to the owning broker and retry until it answers. `make` is called for each try."""

        async def attempt() -> pb.BaseCommand:
            connection = await self._attached()
            try:
                return await connection.request(make)
            except ServerRefusedError as error:
                if error.code == pb.ConsumerNotFound and self._connection is connection:
                    self.lost(error)  # the broker has forgotten it without a notification
                raise

        return await retrying(self._options, self._home.rng, self._what, attempt, lambda: self._cause)
