"""Keys of the sockets of a bookie's port. Source: BookKeeper's ServerConfiguration and BookieNettyServer."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import SECONDS, conf_key
from quire.world.socket_options import SocketOptions


@dataclass(frozen=True, kw_only=True)
class SocketKeys:
    """Options of the connections of bookiePort."""

    tcp_no_delay: bool = conf_key(
        "serverTcpNoDelay",
        True,
        doc="true: answers leave at once. false: the kernel may hold small ones back to send them together.",
    )
    keep_alive: bool = conf_key(
        "serverSockKeepalive", True, doc="true: the kernel breaks connections of clients that have vanished."
    )
    keep_idle_s: int = conf_key(
        "serverTcpKeepIdle",
        0,
        unit=SECONDS,
        minimum=-1,
        maximum=32767,
        doc="With serverSockKeepalive: silence before the first probe. 0 or -1: the kernel's, often two hours.",
    )
    keep_interval_s: int = conf_key(
        "serverTcpKeepIntvl",
        0,
        unit=SECONDS,
        minimum=-1,
        maximum=32767,
        doc="With serverSockKeepalive: time between two probes. 0 or -1: the kernel's.",
    )
    keep_count: int = conf_key(
        "serverTcpKeepCnt",
        0,
        minimum=-1,
        maximum=127,
        doc="With serverSockKeepalive: unanswered probes that break a connection. 0 or -1: the kernel's.",
    )
    linger_s: int = conf_key(
        "serverTcpLinger",
        -1,
        unit=SECONDS,
        minimum=-1,
        maximum=0,
        doc="-1: a closed connection still delivers what was sent. 0: it is reset, and unsent answers are dropped. "
        "Above 0 each close would stop the bookie until the client has everything; it is refused.",
    )

    @property
    def sockets(self) -> SocketOptions:
        return SocketOptions(
            no_delay=self.tcp_no_delay,
            keep_alive=self.keep_alive,
            keep_idle_s=max(0, self.keep_idle_s),
            keep_interval_s=max(0, self.keep_interval_s),
            keep_count=max(0, self.keep_count),
            abort_at_close=self.linger_s == 0,
        )
