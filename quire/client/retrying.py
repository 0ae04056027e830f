"""Retries: which errors are retried, how often, and the error after the last try."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from quire.client.errors import (
    ClientError,
    ClosedError,
    ConnectionLostError,
    ConsumerBusyError,
    NotAllowedError,
    ServerRefusedError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from quire.client.options import ClientOptions
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import Rng

T = TypeVar("T")

PASSING = frozenset(
    (
        pb.UnknownError,
        pb.MetadataError,
        pb.PersistenceError,
        pb.ServiceNotReady,
        pb.TooManyRequests,
        pb.ConsumerNotFound,
        # Whoever is in the way may be a dying process, or our own last connection.
        pb.ConsumerBusy,
        pb.ProducerBusy,
    )
)
"""Errors that another try, after a new lookup, may not meet. Source: what the official clients retry; they give up at once
where somebody else is in the way."""

_NOT_ALLOWED = frozenset((pb.NotAllowedError, pb.AuthorizationError, pb.AuthenticationError))
_JITTER = 0.25


class Backoff:
    """Pauses between tries: each twice as long as the last, shortened by chance so that many clients do not come at once."""

    __slots__ = ("_max", "_min", "_next", "_rng")

    def __init__(self, options: ClientOptions, rng: Rng) -> None:
        self._min = self._next = options.backoff_min_s
        self._max = options.backoff_max_s
        self._rng = rng

    def reset(self) -> None:
        """It worked: begin again with the shortest."""
        self._next = self._min

    def pause(self) -> float:
        """Seconds to wait before the next try."""
        pause = self._next
        self._next = min(2 * pause, self._max)
        return pause * (1 - _JITTER * self._rng.random())


def is_passing(error: ClientError) -> bool:
    """Whether another try may help."""
    if isinstance(error, ServerRefusedError):
        return error.code in PASSING
    return isinstance(error, ConnectionLostError | ServiceUnavailableError) and not isinstance(error, ClosedError)


def final(error: ClientError, what: str) -> ClientError:
    """Return the caller's error for a permanent failure; `what` describes the request."""
    if not isinstance(error, ServerRefusedError):
        return error
    text = f"{what}: {error}"
    if error.code == pb.TopicNotFound:
        return TopicNotFoundError(text)
    if error.code in _NOT_ALLOWED:
        return NotAllowedError(text)
    return ServerRefusedError(error.code, f"{what}: {error.message}")


def gave_up(cause: ClientError | None, what: str, seconds: float) -> ClientError:
    """Return the caller's error for passing failures that did not pass in time."""
    text = f"{what}: no success in {seconds:g} s; last: {cause or 'no answer'}"
    if isinstance(cause, ServerRefusedError) and cause.code == pb.ConsumerBusy:
        return ConsumerBusyError(text)
    return ServiceUnavailableError(text)


async def retrying(
    options: ClientOptions,
    rng: Rng,
    what: str,
    attempt: Callable[[], Awaitable[T]],
    known_cause: Callable[[], ClientError | None] = lambda: None,
) -> T:
    """Try until success. Permanent errors are raised at once, ServiceUnavailableError after `operation_timeout_s`.

    `known_cause`: why an attempt that still goes on has not succeeded, if somebody knows.
    """
    backoff = Backoff(options, rng)
    cause: ClientError | None = None
    with trio.move_on_after(options.operation_timeout_s):
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not is_passing(error):
                    raise final(error, what) from None
                cause = error
            await trio.sleep(backoff.pause())
    raise gave_up(known_cause() or cause, what, options.operation_timeout_s)
