"""Topics of a load: partitions, and their creation over the admin REST."""

from __future__ import annotations

from collections.abc import Sequence

import httpx2
import trio

from quire.cli.messages.access import ClusterAccess, FlagsError
from quire.cli.messages.web import path_of, reason_of, web_client
from quire.client.client import Client

_CONFLICT = 409


async def create_partitioned(access: ClusterAccess, topics: Sequence[str], partitions: int) -> None:
    """Create topics with partitions; those that exist must have as many. 0 creates none. Raises FlagsError."""
    if partitions > 0:
        await trio.to_thread.run_sync(_create, access, topics, partitions)


def _create(access: ClusterAccess, topics: Sequence[str], partitions: int) -> None:
    with web_client(access) as client:
        for topic in topics:
            _create_one(client, topic, partitions)


def _create_one(client: httpx2.Client, topic: str, partitions: int) -> None:
    path = f"{path_of(topic)}/partitions"
    answer = client.put(path, json=partitions)
    if answer.status_code == _CONFLICT:
        found = client.get(path).json().get("partitions")
        if found != partitions:
            raise FlagsError(f"{topic} exists with {found} partitions, and {partitions} are asked for")
    elif answer.status_code >= 400:
        raise FlagsError(f"{topic} cannot be created with {partitions} partitions: {reason_of(answer)}")


async def parts_of(client: Client, topic: str, *, create: bool) -> list[str]:
    """Return the partitions of a topic, or the topic itself. Raises ClientError."""
    count = await client.partitions(topic, create=create)
    return [f"{topic}-partition-{number}" for number in range(count)] or [topic]
