"""Roles that a connection or a request acts with, as authentication found them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """Authenticated role, and behind a proxy also the role of its client. Source: Pulsar's ServerCnx."""

    role: str
    """Role of the connection itself; for a proxy the proxy's."""
    original: str | None = None
    """Role of the proxy's client, None without a proxy. Both need a permission."""

    @property
    def subject(self) -> str:
        """Return the role of the client itself, with or without a proxy."""
        return self.original or self.role
