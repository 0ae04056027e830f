"""Ephemeral nodes that mark ownership: taking one, keeping it over lost sessions, deleting it.

A node of another session may be our own, from an earlier session. It is deleted when that session times out, so we wait
for that.
"""

from __future__ import annotations

import trio

from quire.metadata.errors import MetadataUnavailableError, NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION, Kind, MetadataStore

RETRY_S = 1.0
"""Seconds between attempts while the service cannot be reached and gives no time to retry."""


async def take(store: MetadataStore, path: str, value: bytes, *, wait_s: float | None = None) -> None:
    """Make `path` an ephemeral node of this session with `value`; no effect if it is one already.

    Waits while it is another session's: for `wait_s`, the timeout of a session and a bit, then NodeExistsError; None
    leaves the deadline to the caller. That time begins when the node is seen to be another's: a service that was slow
    to answer may have ended our own session meanwhile, whose node is there for a moment more.
    MetadataUnavailableError: the caller may retry.
    """
    watch = store.watch(path)
    try:
        with trio.CancelScope() as waiting:
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
                if wait_s is not None and waiting.deadline == float("inf"):
                    waiting.deadline = trio.current_time() + wait_s
                await watch.next()
        raise NodeExistsError(f"{path} still belongs to another session after {wait_s:g} s")
    finally:
        watch.close()


async def drop(store: MetadataStore, path: str) -> None:
    """Delete `path` if it is an ephemeral node of this session; no effect if it is missing, or another's."""
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
    """`take` the node and keep it until cancelled: it is created again in a new session, or when it was deleted.

    Reports as started when it is held for the first time. NodeExistsError if another session keeps it for longer than
    `wait_s`; SessionExpiredError if the store continues without a session.
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
