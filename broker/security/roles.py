"""Roles as others see them."""

from __future__ import annotations

from broker.security.principal import Principal


def acting_role(principal: Principal | None) -> str:
    """Return the role that owns what a connection makes; behind a proxy its client's. Empty: there is none.

    Source: Pulsar's ServerCnx.getPrincipal."""
    return "" if principal is None else principal.original or principal.role
