"""Loop of read, change and compare-and-set, by which every shared value is changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from quire.metadata.errors import BadVersionError, NoNodeError
from quire.metadata.store import MetadataStore, Versioned

T = TypeVar("T")


async def update(
    read: Callable[[], Awaitable[Versioned[T] | None]],
    change: Callable[[T], T | None],
    write: Callable[[T, int], Awaitable[int]],
) -> Versioned[T]:
    """Change a shared value; return it as stored afterwards.

    `change` gets the newest value and returns the wanted one, or None if the stored one is right. It is called again
    after each lost race, so it must decide from its argument alone, and may raise to stop. Every lost race means that
    another client made progress, so the number of tries is not limited; the caller sets the deadline.

    NoNodeError if there is no value. MetadataUnavailableError from `write` leaves the outcome open: try again, with a
    `change` that recognises its own work. Source: BookKeeper's MetadataUpdateLoop.
    """
    while True:
        current = await read()
        if current is None:
            raise NoNodeError("there is no value to change")
        wanted = change(current.value)
        if wanted is None:
            return current
        try:
            return Versioned(wanted, await write(wanted, current.version))
        except BadVersionError:
            continue


async def update_node(store: MetadataStore, path: str, change: Callable[[bytes], bytes | None]) -> Versioned[bytes]:
    """Run `update` on the bytes of one node."""

    async def read() -> Versioned[bytes] | None:
        node = await store.get(path)
        return None if node is None else Versioned(node.value, node.version)

    async def write(value: bytes, version: int) -> int:
        return await store.put(path, value, version)

    return await update(read, change, write)
