"""Errors of authentication. Their texts never contain a credential, or a part of one."""

from __future__ import annotations


class AuthenticationError(Exception):
    """Root: credentials were refused. Permanent for these credentials: the client needs others.

    Clients never see the text. It is for the log, and `reason` for the metrics."""

    passing = False

    def __init__(self, text: str, reason: str = "INVALID_TOKEN", *, may_pass: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.may_pass = may_pass
        """True if the same credentials can become right with time."""


class ExpiredError(AuthenticationError):
    """The token has expired. Permanent: the client needs a newer one."""

    def __init__(self) -> None:
        super().__init__("the token has expired", "EXPIRED_TOKEN")


class UncheckedError(AuthenticationError):
    """Credentials that were wrong a moment ago, or one of too many that an address has tried. Permanent for the first;
    the second can be tried again after a minute."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "NOT_CHECKED")


class RolesError(AuthenticationError):
    """Roles that do not go together: a proxy without its client's role, or another client with one. Permanent:
    correct proxyRoles."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "INVALID_ROLES")
