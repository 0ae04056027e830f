"""Blocking access to the brokers: requests to a leased client, this package's errors, a sample of entries."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from quire.client.client import Client
from quire.client.errors import ClientError, ServiceUnavailableError, TopicNotFoundError
from quire.client.message_id import MessageId
from quire.spark.admin import TopicMissingError
from quire.spark.errors import SourceUnavailableError, SparkSourceError
from quire.spark.offsets import Place
from quire.spark.options.parse import Options
from quire.spark.runtime import ClientLease, client_options, runtime
from quire.wire.pulsar.metadata import batch_counts

T = TypeVar("T")

_log = logging.getLogger(__name__)

SAMPLE_ENTRIES = 20
SAMPLE_TIMEOUT_S = 5.0


class Cluster:
    """Client of a query's planner, leased at the first request."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lease: ClientLease | None = None

    @property
    def client(self) -> Client:
        """Return the client; call on the loop. Raises SourceUnavailableError."""
        if self._lease is None:
            options = self._options
            try:
                self._lease = runtime().call(runtime().lease, options.service_url, client_options(options))
            except ClientError as error:
                raise SourceUnavailableError(f"{options.service_url} cannot be reached: {error}") from error
        return self._lease.client

    def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run `await function(*args)` on the loop; raise its error unchanged."""
        return runtime().call(function, *args)

    def ask(self, question: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run `await question(client, *args)` on the loop.

        Raises TopicMissingError, SourceUnavailableError, SparkSourceError for refusals."""
        try:
            return runtime().call(question, self.client, *args)
        except TopicNotFoundError as error:
            raise TopicMissingError(f"{error}: create it or publish to it, then start the query") from error
        except ServiceUnavailableError as error:
            raise SourceUnavailableError(str(error)) from error
        except ClientError as error:
            raise SparkSourceError(f"{self._options.service_url}: {error}") from error

    def close(self) -> None:
        """Release the client. Idempotent."""
        lease, self._lease = self._lease, None
        if lease is not None:

            async def release() -> None:
                lease.release()

            runtime().call(release)


async def sample(client: Client, places: Mapping[str, Place]) -> dict[str, float]:
    """Return the average number of messages in the next entries. Partitions that do not answer in time are left out."""
    found: dict[str, float] = {}

    async def one(name: str, place: Place) -> None:
        with trio.move_on_after(SAMPLE_TIMEOUT_S) as scope:
            try:
                reader = await client.reader(name, MessageId(place.ledger_id, place.entry_id), window=SAMPLE_ENTRIES)
                try:
                    counts = batch_counts((await reader.receive()).entries[:SAMPLE_ENTRIES])
                finally:
                    with trio.CancelScope(shield=True):  # it has a deadline of its own, and must not be left running
                        await reader.close()
            except ClientError as error:
                _log.info("entries of %s were not sampled: %s", name, error)
            else:
                found[name] = sum(counts) / len(counts)
        if scope.cancelled_caught:
            _log.warning(
                "entries of %s were not sampled in %g s: the trigger takes few of them", name, SAMPLE_TIMEOUT_S
            )

    async with trio.open_nursery() as nursery:
        for name, place in places.items():
            nursery.start_soon(one, name, place, name=f"sample of {name}")
    return found
