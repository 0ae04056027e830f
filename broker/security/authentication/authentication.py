"""Decision about the roles of a connection or a request: provider by method, anonymous role, proxies (pure).

Why this is hard: two parties may stand behind one connection, a proxy and its client, and neither may speak for the
other without leave. So a role of `proxyRoles` must name its client's role, and no other role may. And a client without
credentials is not the same as one with wrong ones: only the first may become the anonymous role.

Sources: Pulsar's AuthenticationService, ServerCnx.handleConnect, AuthorizationService.isValidOriginalPrincipal. Other
than there, the roles of proxies are checked also where authorization is off, and a request with wrong credentials is
refused where the original gives it the anonymous role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.security.authentication.credentials import DATA_BYTES_MAX, Identity, Presented, Provider
from broker.security.authentication.errors import AuthenticationError, ExpiredError, RolesError, UncheckedError
from broker.security.principal import Principal
from quire.service.neighbours.logins import Logins

_NAMES = frozenset(("none", "token", "basic", "tls", "athenz", "sasl", "ycav1"))
"""Methods of the original. The log shows no other name: it may be a credential in the wrong place."""


@dataclass(frozen=True, slots=True)
class Login:
    """Result of a handshake."""

    principal: Principal
    method: str
    """Method of the credentials that can expire; empty: of the anonymous role, which has none."""
    expires_ms: int | None = None
    of_original: bool = False
    """True if these credentials are those of the proxy's client."""
    can_refresh: bool = True
    """False if they cannot be asked for again: a proxy speaks for its client and does not forward its credentials."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """Parts of CONNECT that authentication reads."""

    method: str
    presented: Presented
    original_role: str = ""
    original_method: str = ""
    original: Presented | None = None


class Authentication:
    """Providers and roles of a broker. One object for all connections and requests."""

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        anonymous_role: str = "",
        proxy_roles: frozenset[str] = frozenset(),
        verify_original: bool = False,
        refresh_check_s: float = 60.0,
        failures_max: int = 0,
    ) -> None:
        """Take the providers; several of one method are tried in turn.

        Args:
            anonymous_role: role of clients of a method without provider; empty: they are refused.
            proxy_roles: roles that may speak for others.
            verify_original: whether a proxy's client is believed only by credentials of its own, which the proxy
                forwards.
            refresh_check_s: seconds between two looks for expired credentials.
            failures_max: different wrong credentials of one address in a minute; 0: no bound.
        """
        self._providers: dict[str, list[Provider]] = {}
        for provider in providers:
            self._providers.setdefault(provider.method, []).append(provider)
        self._anonymous_role = anonymous_role
        self._proxy_roles = proxy_roles
        self._verify_original = verify_original
        self.refresh_check_s = refresh_check_s
        self.logins = Logins(failures_max)
        self.successes: Counter[tuple[str, str]] = Counter()
        """By provider and method."""
        self.failures: Counter[tuple[str, str, str]] = Counter()
        """By provider, method and reason."""
        self.expired = 0
        """Tokens that had expired."""

    def login(self, handshake: Handshake, now_ms: int, peer: str = "") -> Login:
        """Return the roles of a connection of `peer` (host:port). Raises AuthenticationError, of which RolesError is
        answered otherwise."""
        if handshake.method not in self._providers:
            role = self._anonymous(handshake.method)
            return Login(self._principal(role, handshake.original_role), "")
        identity = self.identify(handshake.method, handshake.presented, now_ms, peer)
        if not handshake.original_role:
            principal = self._principal(identity.role, "")
            return Login(principal, handshake.method, identity.expires_ms)
        if not self._verify_original:
            principal = self._principal(identity.role, handshake.original_role)
            return Login(principal, handshake.method, identity.expires_ms, can_refresh=False)
        if handshake.original_method not in self._providers:
            original = Identity(self._anonymous(handshake.original_method))
        else:
            original = self.identify(handshake.original_method, handshake.original or Presented(b""), now_ms, peer)
        principal = self._principal(identity.role, original.role)
        return Login(principal, handshake.original_method, original.expires_ms, of_original=True)

    def refresh(self, login: Login, method: str, presented: Presented, now_ms: int, peer: str = "") -> Login:
        """Return a login with newer credentials. Raises AuthenticationError, also if they are of another role."""
        if method != login.method:
            raise AuthenticationError("the newer credentials are of another method", "INVALID_METHOD")
        identity = self.identify(method, presented, now_ms, peer)
        principal = login.principal
        expected = principal.original if login.of_original else principal.role
        if identity.role != expected:
            raise AuthenticationError("the newer credentials are of another role", "INVALID_ROLES")
        return Login(principal, method, identity.expires_ms, of_original=login.of_original)

    def of_request(
        self, headers: Mapping[str, str], certificate: bytes | None, now_ms: int, peer: str = ""
    ) -> Principal:
        """Return the roles of a request of `peer` (host:port) by its headers, names in lower case. Raises
        AuthenticationError.

        A method that is named must be the one; without a name all providers are tried. The anonymous role is for
        requests without credentials."""
        original = headers.get("x-original-principal", "")
        method = headers.get("x-pulsar-auth-method-name")
        if method is not None and method not in self._providers:
            raise AuthenticationError(f"there is no provider of the method {_shown(method)}", "INVALID_METHOD")
        failure: AuthenticationError | None = None
        checked = False
        for provider in self._tried(method):
            try:
                presented = provider.of_headers(headers, certificate)
            except AuthenticationError:
                continue
            if method is None and provider.method == "tls" and certificate is None:
                continue
            try:
                return self._request_principal(self._ask(provider, presented, now_ms, peer).role, original)
            except RolesError:
                raise
            except AuthenticationError as error:
                checked = checked or (bool(presented.data) and not isinstance(error, UncheckedError))
                failure = failure or error
        if checked:
            self.logins.count(peer, now_ms / 1000)
        if failure is not None or method is not None or not self._anonymous_role:
            raise failure or AuthenticationError("there are no credentials", "INVALID_AUTH_DATA")
        return self._request_principal(self._anonymous_role, original)

    def _tried(self, method: str | None) -> list[Provider]:
        if method is not None:
            return self._providers[method]
        return [each for several in self._providers.values() for each in several]

    def identify(self, method: str, presented: Presented, now_ms: int, peer: str = "") -> Identity:
        """Return the role that one of the providers of a method finds. Raises AuthenticationError."""
        failure: AuthenticationError | None = None
        checked = False
        for provider in self._providers[method]:
            try:
                return self._ask(provider, presented, now_ms, peer)
            except AuthenticationError as error:
                checked = checked or not isinstance(error, UncheckedError)
                if failure is None or isinstance(error, ExpiredError):
                    failure = error
        assert failure is not None, "a method has at least one provider"
        if checked and presented.data:
            self.logins.count(peer, now_ms / 1000)
        raise failure

    def _ask(self, provider: Provider, presented: Presented, now_ms: int, peer: str) -> Identity:
        data, now_s = presented.data, now_ms / 1000
        try:
            if len(data) > DATA_BYTES_MAX:
                raise AuthenticationError(f"the credentials have more than {DATA_BYTES_MAX} bytes", "INVALID_AUTH_DATA")
            if refusal := self.logins.refusal(peer, data, now_s, provider.name):
                raise UncheckedError(refusal)
            known = self.logins.proved(data, provider.name) if provider.is_lasting else None
            if isinstance(known, Identity):
                identity = known
            else:
                identity = provider.identify(presented, now_ms)
                self.logins.succeeded(data, identity, provider.name)
        except AuthenticationError as error:
            self.failures[provider.name, provider.method, error.reason] += 1
            self.expired += isinstance(error, ExpiredError)
            if not isinstance(error, UncheckedError):
                self.logins.failed(data, str(error), now_s, provider.name, may_pass=error.may_pass)
            raise
        self.successes[provider.name, provider.method] += 1
        return identity

    def _anonymous(self, method: str) -> str:
        if not self._anonymous_role:
            raise AuthenticationError(
                f"there is no provider of the method {_shown(method)} and no anonymousUserRole",
                "INVALID_METHOD",
            )
        return self._anonymous_role

    def _principal(self, role: str, original: str) -> Principal:
        """Return the roles if they go together. Raises RolesError."""
        if role in self._proxy_roles:
            if not original.strip():
                raise RolesError("a role of proxyRoles must name the role of its client")
            if original in self._proxy_roles:
                raise RolesError("the client of a proxy cannot be a proxy")
            return Principal(role, original)
        if original:
            raise RolesError("only roles of proxyRoles may name another role")
        return Principal(role)

    def _request_principal(self, role: str, original: str) -> Principal:
        """Return the roles of a request, which may name its own role again. Raises RolesError."""
        return self._principal(role, "" if original == role and role not in self._proxy_roles else original)


def _shown(method: str) -> str:
    return method if method in _NAMES else "that was named"
