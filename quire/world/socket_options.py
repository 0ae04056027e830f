"""Options of the sockets of one port: how the kernel sends, keeps and closes its connections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """Options of a listening port, which its connections inherit."""

    no_delay: bool = True
    """TCP_NODELAY: small answers leave at once."""
    keep_alive: bool = False
    """SO_KEEPALIVE: the kernel probes silent peers, and breaks the connections of those that do not answer."""
    keep_idle_s: int = 0
    """Seconds of silence before the first probe; 0: the kernel's."""
    keep_interval_s: int = 0
    """Seconds between two probes; 0: the kernel's."""
    keep_count: int = 0
    """Unanswered probes after which a connection is broken; 0: the kernel's."""
    abort_at_close: bool = False
    """SO_LINGER with 0 seconds: a closed connection is reset, and unsent bytes are dropped."""


DEFAULT_OPTIONS = SocketOptions()
