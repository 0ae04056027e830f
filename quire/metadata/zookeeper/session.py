"""Session of a ZooKeeper store: handles its connections, expiry and end, and notifies the parts that depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from kazoo import exceptions

from quire.metadata.errors import MetadataError, MetadataUnavailableError, SessionExpiredError
from quire.metadata.zookeeper.calls import Call, Calls, LostError
from quire.metadata.zookeeper.config import SessionExpiredPolicy, ZooKeeperConfig
from quire.metadata.zookeeper.orphans import Orphans
from quire.metadata.zookeeper.requests import Requests, translate
from quire.metadata.zookeeper.threads import Link
from quire.metadata.zookeeper.watches import Arming, ZooKeeperWatches
from quire.service.log import get_logger
from quire.world.faults import Faults

log = get_logger(__name__)


class Session:
    """Sessions of one store, one after the other. All on the event loop, except `link.stop`."""

    def __init__(self, config: ZooKeeperConfig, faults: Faults | None = None) -> None:
        self._config = config
        self._changed = trio.Event()
        """Set, and replaced, when the connection changes."""
        self._end: str | None = None
        """Reason why there is no session any more, and will be none."""
        self.expired = trio.Event()
        self.is_connected = False
        self.listeners: list[Callable[[int], None]] = []
        self.id = 0
        """Session id, 64 bits, signed; 0 before the first and between two sessions."""
        self.requests = Requests(config.chroot, secure=config.secure, max_bytes=config.request_max_bytes)
        self.orphans = Orphans(self.requests, self._silently, lambda: self.id)
        self.link = Link(config, self, faults)
        self.calls = Calls(
            self.link, in_flight_max=config.in_flight_max, waiting_max=config.waiting_max, late=self.orphans.late
        )
        self.watches = ZooKeeperWatches(
            arm_node=self._arm_node,
            arm_children=self._arm_children,
            take_back=self._take_back,
            newest=lambda: self.link.last_zxid,
            post=lambda arming, event: self.link.post(self.watches.fired, arming, event),
            idle_max=config.idle_watches_max,
        )

    @property
    def has_ended(self) -> bool:
        return self._end is not None

    def connected(self, session: int) -> None:
        before, self.id, self.is_connected = self.id, session, True
        new = session != before
        if new:
            self.orphans.new_session()
        log.info("metadata connection", session=f"{session & (1 << 64) - 1:x}", new_session=new)
        if self._end is not None:
            return
        if new:
            for listener in list(self.listeners):
                listener(session)
        line = self.calls.ahead()
        self.watches.connected()  # before anything else: readers that read again do so after the watches are armed
        self.orphans.find()
        self.calls.behind(line)
        self.calls.connected(session)
        self._tell()

    def disconnected(self) -> None:
        self.is_connected = False
        if self._end is None:
            log.warning("metadata connection lost", reason=self.link.words.last)
        self.watches.disconnected()
        self.calls.disconnected()
        self._tell()

    def session_expired(self) -> None:
        self.is_connected = False
        if self._end is not None:
            return
        if self._config.session_expired_policy is SessionExpiredPolicy.SHUTDOWN:
            self.ended("the session has expired")
            return
        log.warning("metadata session expired", policy="reconnect")
        self.id = 0
        self.watches.disconnected()
        self.calls.session_expired()
        self._tell()

    def ended(self, why: str) -> None:
        self.is_connected = False
        if self._end is not None:
            return
        log.warning("metadata session ended", reason=why)
        self._end = f"the metadata session is gone: {why}"
        self.expired.set()
        self.watches.fail(self.gone())
        self.calls.end(self.gone)
        self._tell()

    async def connect(self) -> None:
        """Begin, and wait for the first connection.

        MetadataUnavailableError if there is none in time, SessionExpiredError if the server refuses the credentials.
        """
        self.link.start()
        with trio.move_on_after(self._config.connect_timeout_s):
            while not self.is_connected and self._end is None:
                await self._changed.wait()
        self.require()
        if not self.is_connected:
            raise MetadataUnavailableError(
                f"ZooKeeper does not answer at {self.servers} within {self._config.connect_timeout_s:g} s"
                + (f": {self.link.words.last}" if self.link.words.last else "")
            )

    @property
    def servers(self) -> str:
        """Configured servers, for messages."""
        return ", ".join(f"{host}:{port}" for host, port in self._config.servers)

    def close(self, why: str) -> None:
        """End the session for its owner; `link.stop` and then `closed` must follow."""
        if self._end is None:
            self._end = why
        self.watches.fail(self.gone())

    def closed(self) -> None:
        self.is_connected = False
        self.calls.end(self.gone)

    def require(self) -> None:
        """Raise SessionExpiredError if there is no session any more."""
        if self._end is not None:
            raise self.gone()

    def gone(self) -> SessionExpiredError:
        assert self._end is not None, "the session lives"
        return SessionExpiredError(self._end)

    def translated(self, error: Exception, path: str, index: int = 0) -> MetadataError:
        """Return our error for kazoo's error in this session."""
        if isinstance(error, exceptions.SessionExpiredError):
            if self._end is not None:
                return self.gone()
            # kazoo failed the call before it reported the session's end. The call was refused, but a new session may
            # come.
            return MetadataUnavailableError(f"{path}: the session has expired", index=index)
        return translate(error, path, index)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _silently(self, request: Any, on_done: Callable[[Call], None] | None = None, /) -> None:
        if self._end is None:
            self.calls.ask(request, on_done, nobodys=True)

    def _arm_node(self, arming: Arming) -> None:
        def done(call: Call) -> None:
            stat = call.value
            if call.error is not None:
                self._refused(arming, call.error)
            elif stat is not None:
                self.watches.node_armed(arming, max(stat.czxid, stat.mzxid, stat.pzxid))

        self._silently(self.requests.exists(arming.path, arming), done)

    def _arm_children(self, arming: Arming) -> None:
        def done(call: Call) -> None:
            if isinstance(call.error, exceptions.NoNodeError):
                self.watches.no_children(arming)
            elif call.error is not None:
                self._refused(arming, call.error)

        self._silently(self.requests.children(arming.path, arming), done)

    def _refused(self, arming: Arming, error: Exception) -> None:
        """Handle a refused arming.

        After the loss of connection or session all armings are gone, and are made again with the next one.
        """
        if isinstance(error, (LostError, SessionExpiredError, exceptions.SessionExpiredError)):
            return
        log.warning("metadata watch refused", path=arming.path, reason=str(self.translated(error, arming.path)))
        self.watches.refused(arming)

    def _take_back(self, path: str, armings: list[Arming]) -> None:
        self._silently(self.link.remove_watches(self.requests.full(path), armings))
