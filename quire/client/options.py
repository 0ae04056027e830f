"""Options of a client: deadlines, back-off, bounds."""

from __future__ import annotations

from dataclasses import dataclass

from quire.wire.pulsar.frames import MESSAGE_SIZE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Seconds, bytes. ValueError if they make no sense."""

    operation_timeout_s: float = 30.0
    """How long what is passing is tried again, since the last success, before it is an error."""
    connect_timeout_s: float = 10.0
    """For a connection and its handshake."""
    keep_alive_interval_s: float = 30.0
    """A connection silent for this long is asked with PING, and lost if silent for as long again."""
    backoff_min_s: float = 0.1
    backoff_max_s: float = 10.0
    """Pauses between tries double from the one to the other, each shortened by chance by up to a quarter."""
    receive_bytes_max: int = 16 << 20
    """Bytes queued for callers who did not take them yet, at which a connection is not read."""
    message_size_max: int = MESSAGE_SIZE_MAX
    """Bytes of metadata and payload of one message, as long as the broker does not tell its own limit."""
    client_name: str = "Quire"
    """Told to brokers as the client's version."""

    def __post_init__(self) -> None:
        times = (self.operation_timeout_s, self.connect_timeout_s, self.keep_alive_interval_s, self.backoff_min_s)
        if min(times) <= 0 or self.backoff_max_s < self.backoff_min_s:
            raise ValueError(f"timeouts and pauses must be above 0, and the longest pause not the shortest: {self}")
        if self.receive_bytes_max < 1 or self.message_size_max < 1:
            raise ValueError(f"bounds must be above 0: {self}")
