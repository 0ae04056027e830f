"""Cleanup of ephemeral sequential nodes whose names were lost with an answer.

Runs on the event loop, without waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from kazoo import exceptions

from quire.metadata import paths
from quire.metadata.store import Delete
from quire.metadata.zookeeper.calls import Call
from quire.metadata.zookeeper.requests import NUMBER_WIDTH, Requests
from quire.service.log import get_logger

log = get_logger(__name__)


class Silently(Protocol):
    """Sender of requests without waiting; failures are those of the connection, and are repaired with it."""

    def __call__(self, request: Any, on_done: Callable[[Call], None] | None = None, /) -> None: ...


class Orphans:
    """Orphaned nodes of one store."""

    def __init__(self, requests: Requests, silently: Silently, session: Callable[[], int]) -> None:
        self._requests = requests
        self._silently = silently
        self._session = session
        self._handed_out: set[str] = set()
        """Ephemeral nodes with a number that are known to a caller in this process."""
        self._unsettled: dict[str, None] = {}
        """Folders that may contain unknown ephemeral sequential nodes of this session."""
        self._orphans: dict[str, None] = {}
        """Unknown nodes, found and not deleted yet."""

    def hand_out(self, path: str) -> None:
        """Record that a caller knows of an ephemeral node of this session."""
        if number_of(path):
            self._handed_out.add(path)

    def forget(self, path: str) -> None:
        """Record that a node was deleted."""
        self._handed_out.discard(path)

    def new_session(self) -> None:
        """Forget everything: a new session has no nodes yet."""
        self._handed_out.clear()
        self._unsettled.clear()
        self._orphans.clear()

    def answered(self, call: Call) -> None:
        """Record the nodes that a call has created as known, before any later answer is handled."""
        if call.folders and call.error is None and not call.abandoned:
            for made in [call.value] if isinstance(call.value, str) else call.value:
                if isinstance(made, str) and number_of(made):
                    self._handed_out.add(self._requests.own(made))

    def late(self, call: Call) -> None:
        """Record that nodes created by a call are unknown: its answer was lost, or its caller has gone."""
        if not call.folders:
            return
        if not call.settled:
            self._unsettled.update(dict.fromkeys(call.folders))  # examined when there is a connection again
        elif call.error is None:
            for made in [call.value] if isinstance(call.value, str) else call.value:
                if isinstance(made, str) and number_of(made) and paths.parent(self._requests.own(made)) in call.folders:
                    self._drop(self._requests.own(made))

    def find(self) -> None:
        """Search the folders where the last connection may have left nodes; continue with those already found.

        The list is answered after all earlier requests. So nodes in it that belong to this session and are unknown have
        been lost.
        """
        for path in self._orphans:
            self._drop(path)
        for folder in self._unsettled:
            self._silently(self._requests.children(folder), partial(self._sort_out, folder))

    def _sort_out(self, folder: str, call: Call) -> None:
        if call.error is not None and not isinstance(call.error, exceptions.NoNodeError):
            return
        self._unsettled.pop(folder, None)
        for name in call.value or ():
            path = paths.join(folder, name)
            if number_of(path) and path not in self._handed_out:
                self._drop(path)

    def _drop(self, path: str) -> None:
        """Delete the node if it belongs to this session."""
        self._orphans[path] = None

        def seen(call: Call) -> None:
            if call.error is not None:
                return
            if call.value is None or call.value.ephemeralOwner != self._session() or path in self._handed_out:
                self._orphans.pop(path, None)
                return
            log.info("deleting an orphaned node", path=path)
            self._silently(self._requests.op(Delete(path=path)), dropped)

        def dropped(call: Call) -> None:
            if call.error is None or isinstance(call.error, exceptions.NoNodeError):
                self._orphans.pop(path, None)

        self._silently(self._requests.exists(path), seen)


def number_of(path: str) -> str:
    """Return the sequence number at the end of the path; empty if there is none."""
    digits = path[-NUMBER_WIDTH:]
    return digits if len(digits) == NUMBER_WIDTH and digits.isascii() and digits.isdigit() else ""
