"""Security that the suite takes for granted: TLS with the certificates of its checkout, its users, a secret key, a
token where its tests read one, and who may do what.

The suite's own script of set-up has the same: build-support/start-test-service-inside-container.sh,
tests/test-conf/standalone-ssl.conf."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.security.authentication.making import token_of_secret

_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_ANONYMOUS, _ROLE, SUPER_USER = "anonymous", "token-principal", "superUser"
"""Roles of clients without credentials, of the token of the tests, and of the set-up."""
ADMINS: Mapping[str, list[str]] = {"public": [_ANONYMOUS], "private": []}
"""Tenants, and the roles that administer each."""
GRANTED: Mapping[str, str] = {"public/default": _ANONYMOUS, "public/default-2": _ANONYMOUS, "private/auth": _ROLE}
"""Namespaces, and the role that may use the topics of each."""
ACTIONS = ["produce", "consume"]
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Security:
    """Keys of the configuration, and the set-up's own token."""

    settings: dict[str, object]
    token: str = field(repr=False)


def make_security(checkout: Path, folder: Path) -> Security:
    """Make a secret key in `folder`, and the token of the tests in the checkout, where git ignores it."""
    given = checkout / "tests" / "test-conf"
    secret = os.urandom(SECRET_BYTES)
    key = folder / "secret.key"
    key.write_bytes(secret)
    own = folder / "superuser.token"
    own.write_text(token_of_secret(secret, {"sub": SUPER_USER}, {}))
    (checkout / "tests" / ".test-token.txt").write_text(token_of_secret(secret, {"sub": _ROLE}, {}))
    return Security(
        {
            "tlsCertificateFilePath": given / "broker-cert.pem",
            "tlsKeyFilePath": given / "broker-key.pem",
            "tlsTrustCertsFilePath": given / "cacert.pem",
            "authenticationEnabled": "true",
            "authenticationProviders": f"{_PROVIDERS}Tls,{_PROVIDERS}Token,{_PROVIDERS}Basic",
            "anonymousUserRole": _ANONYMOUS,
            "authorizationEnabled": "true",
            "superUserRoles": f"localhost,{SUPER_USER},admin",
            "tokenSecretKey": f"file://{key}",
            "basicAuthConf": given / ".htpasswd",
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"file://{own}",
        },
        own.read_text(),
    )
