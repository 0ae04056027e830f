"""Security of a broker's process, from its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.authentication.config import AuthenticationOptions
from broker.security.authorization.config import AuthorizationOptions
from quire.client.authentication import Credentials, CredentialsError, from_plugin
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.neighbours.rare_lines import RareLines
from quire.world.doors import Clock

if TYPE_CHECKING:
    from starlette.middleware import Middleware

    from broker.neighbours.neighbours import Neighbours
    from broker.security.authentication.authentication import Authentication

log = get_logger(__name__)


def authentication_of(options: AuthenticationOptions, permissions: AuthorizationOptions) -> Authentication | None:
    """Return the check of clients' credentials; None: it is off. Raises ConfigError, also if only permissions are to be
    checked. Source: Pulsar's PulsarService.start."""
    if not options.enabled:
        if permissions.enabled:
            raise ConfigError("authorizationEnabled: needs authenticationEnabled=true: no client would have a role")
        return None
    from broker.security.authentication.loading import load  # its libraries take 0.1 s of CPU

    return load(options, permissions.proxies)


def credentials_of(options: AuthenticationOptions) -> Credentials | None:
    """Return this broker's own credentials; None: it has none. Raises ConfigError."""
    credentials = _own(options)
    if credentials is None and options.enabled:
        log.warning("calls to other brokers have no credentials: set brokerClientAuthenticationPlugin")
    return credentials


def _own(options: AuthenticationOptions) -> Credentials | None:
    try:
        return from_plugin(options.client_plugin.strip(), options.client_parameters)
    except CredentialsError as error:
        raise ConfigError(f"brokerClientAuthenticationPlugin, brokerClientAuthenticationParameters: {error}") from None


def check_security(options: AuthenticationOptions, permissions: AuthorizationOptions) -> None:
    """Raise ConfigError, before anything is connected, if the configuration asks for security that is not there."""
    authentication_of(options, permissions)
    _own(options)


def middleware_of(
    authentication: Authentication | None,
    options: AuthenticationOptions,
    clock: Clock,
    rare_lines: RareLines,
    neighbours: Neighbours | None = None,
) -> tuple[Middleware, ...]:
    """Return what every request to the web port passes."""
    if authentication is None and neighbours is None:
        return ()
    from starlette.middleware import Middleware

    made: list[Middleware] = []
    if authentication is not None:
        from broker.security.web import RequestAuthentication

        metrics_too = options.authenticate_metrics
        made.append(Middleware(RequestAuthentication, authentication, clock, rare_lines, metrics_too=metrics_too))
    if neighbours is not None:
        from broker.neighbours.web import RequestLimits

        made.append(Middleware(RequestLimits, neighbours))
    return tuple(made)
