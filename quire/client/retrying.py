"""Retries: which errors are retried, how often, and the error after the last try."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from quire.client.errors import (
    ClientError,
    ConsumerBusyError,
    NotAllowedError,
    ServerRefusedError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from quire.client.options import ClientOptions
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.backoff import Backoff
from quire.world.doors import Rng

T = TypeVar("T")

_NOT_ALLOWED = frozenset((pb.NotAllowedError, pb.AuthorizationError, pb.AuthenticationError))


def client_backoff(options: ClientOptions, rng: Rng) -> Backoff:
    """Return the pauses between tries of one operation."""
    return Backoff(options.backoff_min_s, options.backoff_max_s, rng)


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

    `known_cause`: returns why a pending attempt has not succeeded, if known."""
    backoff = client_backoff(options, rng)
    cause: ClientError | None = None
    with trio.move_on_after(options.operation_timeout_s):
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not error.passing:
                    raise final(error, what) from None
                cause = error
            await trio.sleep(backoff.next())
    raise gave_up(known_cause() or cause, what, options.operation_timeout_s)
