"""Credentials that a client presents, and the role that they prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

DATA_BYTES_MAX = 64 << 10
"""Maximum bytes of credentials; longer ones are refused unread."""


@dataclass(frozen=True, slots=True)
class Presented:
    """Credentials as they came. No part of them is in its repr."""

    data: bytes = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    """Certificate that the peer has proven to hold, in DER; None without one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Role that credentials prove."""

    role: str
    expires_ms: int | None = None
    """Date from which the credentials are no longer valid, in milliseconds since 1970; None: no end."""


class Provider(Protocol):
    """One way of authentication."""

    @property
    def method(self) -> str:
        """Return its name in CONNECT."""

    @property
    def name(self) -> str:
        """Return its name in metrics: that of the original's class."""

    @property
    def is_lasting(self) -> bool:
        """Return whether credentials that were right stay so until the broker is restarted."""

    def identify(self, presented: Presented, now_ms: int) -> Identity:
        """Return the role, in at most a few milliseconds. Raises AuthenticationError."""

    def of_headers(self, headers: Mapping[str, str], certificate: bytes | None) -> Presented:
        """Return what a request presents in its headers, names in lower case. Raises AuthenticationError: nothing for
        this provider."""
