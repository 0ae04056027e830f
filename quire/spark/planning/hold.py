"""The hold: a durable subscription on each partition that keeps unread data of the query from being deleted.

A broker deletes ledgers that every subscription has passed. So the subscription is made before the first offset is
returned, at exactly that offset; it is attached, exclusively and without ever taking a message, as long as the process
that plans lives, so that a second query on the same name is refused; it moves only when Spark commits, which is behind
the checkpoint, and never back; and it is never dropped here: between two runs of a query it is all that protects the
data.

Everything here is called on the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import trio

from quire.client.client import Client, Subscription
from quire.client.errors import ClientError, ConsumerBusyError
from quire.client.message_id import MessageId
from quire.spark.errors import SourceUnavailableError
from quire.spark.offsets import Place
from quire.world.tasks import for_each

_log = logging.getLogger(__name__)

PARALLEL_MAX = 16
MOVE_TIMEOUT_S = 10.0
"""Deadline of a commit for moving the subscriptions. The next commit moves the rest."""


class Hold:
    """One subscription name on the partitions of one query."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client
        self._attached: dict[str, Subscription] = {}
        self._moved: dict[str, tuple[int, int]] = {}

    @property
    def partitions(self) -> frozenset[str]:
        """Return the partitions that are held."""
        return frozenset(self._attached)

    async def attach(self, places: Mapping[str, Place]) -> dict[str, tuple[int, int]]:
        """Attach to the subscriptions of these partitions; a missing one is created with `place` next.

        Returns the mark-delete positions found. Raises SourceUnavailableError: another consumer has one of them, or the
        brokers are unavailable."""
        found: dict[str, tuple[int, int]] = {}

        async def attach(partition: str) -> None:
            if partition not in self._attached:
                place = places[partition]
                start = MessageId(place.ledger_id, place.entry_id)
                self._attached[partition] = await self._client.subscription(partition, self.name, start=start)
            mark = await self._attached[partition].mark_delete()
            found[partition] = self._moved[partition] = (mark.ledger_id, mark.entry_id)

        for partition, error in (await _each(attach, places)).items():
            if isinstance(error, ConsumerBusyError):
                raise SourceUnavailableError(
                    f"subscription {self.name!r} of {partition} is in use by another query or consumer: give "
                    "each query a "
                    f"subscription of its own (option subscription), or stop the other one ({error})"
                ) from None
            raise SourceUnavailableError(
                f"subscription {self.name!r} of {partition} cannot be attached: {error}"
            ) from error
        return found

    async def seek(self, places: Mapping[str, Place]) -> None:
        """Move these subscriptions back or forward, so that `place` is next. Raises SourceUnavailableError."""

        async def seek(partition: str) -> None:
            place = places[partition]
            await self._attached[partition].seek(MessageId(place.ledger_id, place.entry_id))
            self._moved[partition] = (place.ledger_id, place.entry_id - 1)

        for partition, error in (await _each(seek, places)).items():
            raise SourceUnavailableError(
                f"subscription {self.name!r} of {partition} cannot be moved to {places[partition]}: {error}"
            ) from error

    async def move(self, marks: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Acknowledge everything up to these entries; return the moved ones.

        Never moves back, and never raises: a failure is logged, and the next call covers it."""
        ahead = {
            partition: mark
            for partition, mark in marks.items()
            if mark[1] >= 0 and partition in self._attached and mark > self._moved[partition]
        }
        done: dict[str, tuple[int, int]] = {}

        async def move(partition: str) -> None:
            mark = ahead[partition]
            await self._attached[partition].acknowledge(MessageId(*mark))
            done[partition] = self._moved[partition] = mark

        errors: dict[str, ClientError] = {}
        with trio.move_on_after(MOVE_TIMEOUT_S):
            errors = await _each(move, ahead)
        late = [partition for partition in ahead if partition not in done]
        if late:
            cause = errors.get(late[0], f"no answer within {MOVE_TIMEOUT_S:g} s")
            _log.warning(
                "subscription %r was not moved on %d of %d partitions (first %s: %s); the next commit does it",
                *(self.name, len(late), len(marks), late[0], cause),
            )
        return done

    async def detach(self) -> None:
        """Detach from the subscriptions, which stay and retain the data. For tests and orderly ends; the end of the
        process has the same effect."""
        attached, self._attached = self._attached, {}

        async def close(partition: str) -> None:
            await attached[partition].close()

        await _each(close, attached)


async def _each(work: Callable[[str], Awaitable[None]], partitions: Mapping[str, object]) -> dict[str, ClientError]:
    """Run the job for each partition, some concurrently; return the errors by partition."""
    errors: dict[str, ClientError] = {}

    async def one(partition: str) -> None:
        try:
            await work(partition)
        except ClientError as error:
            errors[partition] = error

    await for_each(partitions, one, at_once=PARALLEL_MAX, name="hold of partitions")
    return errors
