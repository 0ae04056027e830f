"""Creation of cursors: a new one, one from its stored state, and one that is not stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from cursors.ack_state import AckState
from cursors.cursor import Cursor
from cursors.cursor_store import CursorStore
from cursors.doors import Log
from cursors.errors import InvalidCursorNameError
from cursors.services import CursorServices
from quire.ledger.position import Position
from quire.service.shared_maps import EMPTY
from quire.wire.pulsar.names import encode_name


def cursor_path(log_path: str, name: str) -> str:
    """Return the path of a cursor's node, a child of its log's. Raises InvalidCursorNameError."""
    component = encode_name(name)
    if component in ("", ".", ".."):
        raise InvalidCursorNameError(f"invalid subscription name {name!r}")
    return f"{log_path}/{component}"


async def create_cursor(
    services: CursorServices,
    log: Log,
    log_path: str,
    log_name: str,
    name: str,
    mark_delete: Position,
    properties: Sequence[tuple[str, str]],
    on_fenced: Callable[[], None],
) -> Cursor:
    """Create a durable cursor that delivers what follows `mark_delete`; its node is durable on return.

    Raises InvalidCursorNameError, CursorFencedError, NodeExistsError and other MetadataError."""
    store = CursorStore(services, cursor_path(log_path, name), log_name, name, on_fenced)
    state = AckState(log, mark_delete)
    await store.create(state, properties)
    return Cursor(name, log, state, store)


async def recover_cursor(
    services: CursorServices, log: Log, log_path: str, log_name: str, name: str, on_fenced: Callable[[], None]
) -> Cursor:
    """Open the cursor in its last durable state. Raises CursorError, MetadataError."""
    store = CursorStore(services, cursor_path(log_path, name), log_name, name, on_fenced)
    stored = await store.recover()
    state = AckState(log, stored.mark_delete)
    state.ranges, state.batches, state.properties = stored.ranges, stored.batches, stored.properties or EMPTY
    state.with_redeliveries(stored.redeliveries)
    state.delayed_index = stored.delayed_index
    for _ in state.fitting_to_log():
        await trio.lowlevel.checkpoint()
    store.attach(state)
    return Cursor(name, log, state, store)


def memory_cursor(log: Log, name: str, mark_delete: Position) -> Cursor:
    """Return a reader's cursor, which exists in this process only and does not prevent trimming."""
    return Cursor(name, log, AckState(log, mark_delete), None)
