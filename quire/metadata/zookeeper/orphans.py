"""Ephemeral sequential nodes that nobody knows of, because the answer with their name was lost: found and deleted (on the
event loop, without waiting)."""

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
    """Asks without waiting; what goes wrong goes wrong with the connection, and is mended with it."""

    def __call__(self, request: Any, on_done: Callable[[Call], None] | None = None, /) -> None: ...


class Orphans:
    """Those of one store."""

    def __init__(self, requests: Requests, silently: Silently, session: Callable[[], int]) -> None:
        self._requests = requests
        self._silently = silently
        self._session = session
        self._handed_out: set[str] = set()
        """Ephemeral nodes with a number that somebody of this process knows of."""
        self._unsettled: dict[str, None] = {}
        """Folders that may hold ephemeral sequential nodes of this session that nobody knows of."""
        self._orphans: dict[str, None] = {}
        """Such nodes, found and not deleted yet."""

    def hand_out(self, path: str) -> None:
        """Somebody knows of an ephemeral node of this session."""
        if number_of(path):
            self._handed_out.add(path)

    def forget(self, path: str) -> None:
        """It was deleted."""
        self._handed_out.discard(path)

    def new_session(self) -> None:
        """Nothing of before is left."""
        self._handed_out.clear()
        self._unsettled.clear()
        self._orphans.clear()

    def answered(self, call: Call) -> None:
        """The nodes that a call has made are somebody's from here on, before any later answer is looked at."""
        if call.folders and call.error is None and not call.abandoned:
            for made in [call.value] if isinstance(call.value, str) else call.value:
                if isinstance(made, str) and number_of(made):
                    self._handed_out.add(self._requests.own(made))

    def late(self, call: Call) -> None:
        """The answer was lost, or its asker has gone: what the call made with a number is nobody's."""
        if not call.folders:
            return
        if not call.settled:
            self._unsettled.update(dict.fromkeys(call.folders))  # looked at when there is a connection again
        elif call.error is None:
            for made in [call.value] if isinstance(call.value, str) else call.value:
                if isinstance(made, str) and number_of(made) and paths.parent(self._requests.own(made)) in call.folders:
                    self._drop(self._requests.own(made))

    def find(self) -> None:
        """Look through the folders where the last connection may have left some; go on with those that were found.

        The list comes after the answers of all that was sent before it, so whatever is in it, of this session and not
        handed out, has been lost.
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
        """Delete it, if it is this session's."""
        self._orphans[path] = None

        def seen(call: Call) -> None:
            if call.error is not None:
                return
            if call.value is None or call.value.ephemeralOwner != self._session() or path in self._handed_out:
                self._orphans.pop(path, None)
                return
            log.info("a node that nobody knows of is deleted", path=path)
            self._silently(self._requests.op(Delete(path=path)), dropped)

        def dropped(call: Call) -> None:
            if call.error is None or isinstance(call.error, exceptions.NoNodeError):
                self._orphans.pop(path, None)

        self._silently(self._requests.exists(path), seen)


def number_of(path: str) -> str:
    """The number that the path ends with, if it has the form of one; empty otherwise."""
    digits = path[-NUMBER_WIDTH:]
    return digits if len(digits) == NUMBER_WIDTH and digits.isascii() and digits.isdigit() else ""
