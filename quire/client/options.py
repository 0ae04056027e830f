"""Options of a client: deadlines, back-off, bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from quire.client.authentication import Credentials
from quire.wire.pulsar.frames import MESSAGE_SIZE_MAX
from quire.world.tls_options import TlsOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Deadlines, back-off and bounds of a client, in seconds and bytes. Raises ValueError for invalid values."""

    operation_timeout_s: float = 30.0
    """Time since the last success for which passing errors are retried before a call fails."""
    connect_timeout_s: float = 10.0
    """Deadline of a connection with its handshake."""
    keep_alive_interval_s: float = 30.0
    """Silence after which a connection gets a PING; after the same time again it counts as lost."""
    backoff_min_s: float = 0.1
    backoff_max_s: float = 10.0
    """Pauses between tries double from the minimum to the maximum, each shortened at random by up to a quarter."""
    receive_bytes_max: int = 16 << 20
    """Bytes queued for callers at which a connection is not read."""
    message_size_max: int = MESSAGE_SIZE_MAX
    """Maximum bytes of metadata and payload of one message, until the broker announces its own limit."""
    tls: TlsOptions = field(default_factory=TlsOptions)
    """Files and rules of connections with TLS, which a service URL of pulsar+ssl:// asks for. The files are read again
    for each connection. By default the authorities of the system are trusted, and no certificate is shown."""
    client_name: str = "Quire"
    """Sent to brokers as the client's version."""
    credentials: Credentials | None = field(default=None, repr=False)
    """Credentials of the client; None: it has none. See quire.client.authentication."""

    def __post_init__(self) -> None:
        times = (self.operation_timeout_s, self.connect_timeout_s, self.keep_alive_interval_s, self.backoff_min_s)
        if min(times) <= 0 or self.backoff_max_s < self.backoff_min_s:
            raise ValueError(f"timeouts and pauses must be above 0, and backoff_max_s not below backoff_min_s: {self}")
        if self.receive_bytes_max < 1 or self.message_size_max < 1:
            raise ValueError(f"bounds must be above 0: {self}")
