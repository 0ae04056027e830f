"""Decision about a connection whose credentials may have expired (pure).

Source: Pulsar's ServerCnx.refreshAuthenticationCredentials.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from broker.security.authentication.authentication import Login

CHALLENGE = b"PulsarAuthRefresh"
"""Data of an AUTH_CHALLENGE that asks for newer credentials. Source: Pulsar's AuthData."""


class RefreshStep(Enum):
    """Next step of a connection; the value of those that end it is the reason."""

    KEEP = ""
    CHALLENGE = "challenge"
    PROXY = "credentials expired: the proxy does not forward those of its client"
    UNABLE = "credentials expired: the client cannot refresh them"
    LATE = "credentials expired: the client did not refresh them in time"


@dataclass(slots=True)
class LoginSession:
    """Credentials of a connection."""

    login: Login
    client_can: bool
    """True if the client answers AUTH_CHALLENGE."""
    challenged: bool = False
    """True if it was asked, and has not answered."""

    def next_step(self, now_ms: int) -> RefreshStep:
        """Return what to do now, and remember a challenge."""
        if self.login.expires_ms is None or now_ms <= self.login.expires_ms:
            return RefreshStep.KEEP
        if not self.login.can_refresh:
            return RefreshStep.PROXY
        if not self.client_can:
            return RefreshStep.UNABLE
        if self.challenged:
            return RefreshStep.LATE
        self.challenged = True
        return RefreshStep.CHALLENGE
