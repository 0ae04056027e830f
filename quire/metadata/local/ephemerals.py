"""Ephemeral nodes that say "this is mine": taking one, keeping it over lost sessions, giving it up.

A node of another session may be our own, of a session before: it goes when that session times out, so it is waited for.
"""

from __future__ import annotations

import trio

from quire.metadata.errors import MetadataUnavailableError, NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION, Kind, MetadataStore

RETRY_S = 1.0
"""Between attempts while the service cannot be reached and does not say when it can."""


async def take(store: MetadataStore, path: str, value: bytes, *, wait_s: float | None = None) -> None:
    """Make `path` an ephemeral node of this session with `value`; fine if it is already.

    Waits while it is another session's: for `wait_s`, the timeout of a session and a bit, then NodeExistsError; None
    leaves the deadline to the caller. MetadataUnavailableError: ask again.
    """
    watch = store.watch(path)
    try:
        with trio.move_on_after(float("inf") if wait_s is None else wait_s):
            while True:
                try:
                    await store.create(path, value, kind=Kind.EPHEMERAL, make_parents=True)
                    return
                except NodeExistsError:
                    node = await store.get(path)
                if node is None:
                    continue
                if node.mine:
                    if node.value != value:
                        await store.put(path, value, ANY_VERSION)
                    return
                await watch.next()
        raise NodeExistsError(f"{path} still belongs to another session after {wait_s:g} s")
    finally:
        watch.close()


async def drop(store: MetadataStore, path: str) -> None:
    """Delete `path` if it is an ephemeral node of this session; fine if it is not there, or another's."""
    node = await store.get(path)
    if node is not None and node.mine:
        try:
            await store.delete(path)
        except NoNodeError:
            return


async def keep(
    store: MetadataStore,
    path: str,
    value: bytes,
    *,
    wait_s: float | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """`take` it and go on holding it, until cancelled: made anew in a new session, or when somebody deleted it.

    Reports as started when it is held for the first time. NodeExistsError if another session keeps it for longer than
    `wait_s`; SessionExpiredError if the store goes on with no session.
    """
    watch = store.watch(path)
    try:
        await take(store, path, value, wait_s=wait_s)
        task_status.started()
        while True:
            await watch.next()
            while True:
                try:
                    await take(store, path, value, wait_s=wait_s)
                    break
                except MetadataUnavailableError:
                    with trio.move_on_after(RETRY_S):
                        await watch.next()
    finally:
        watch.close()
