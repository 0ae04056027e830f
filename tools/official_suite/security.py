"""Authentication that the suite takes for granted: its users, a secret key, and a token where its tests read one.

The suite's own script of set-up has the same: build-support/start-test-service-inside-container.sh,
tests/test-conf/standalone-ssl.conf."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from broker.security.authentication.making import token_of_secret

_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_ROLE, SUPER_USER = "token-principal", "superUser"
"""Role of the token of the tests, and of the set-up."""
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Security:
    """Keys of the configuration, and the set-up's own token."""

    settings: dict[str, object]
    token: str = field(repr=False)


def make_security(checkout: Path, folder: Path) -> Security:
    """Make a secret key in `folder`, and the token of the tests in the checkout, where git ignores it."""
    secret = os.urandom(SECRET_BYTES)
    key = folder / "secret.key"
    key.write_bytes(secret)
    own = folder / "superuser.token"
    own.write_text(token_of_secret(secret, {"sub": SUPER_USER}, {}))
    (checkout / "tests" / ".test-token.txt").write_text(token_of_secret(secret, {"sub": _ROLE}, {}))
    return Security(
        {
            "authenticationEnabled": "true",
            "authenticationProviders": f"{_PROVIDERS}Tls,{_PROVIDERS}Token,{_PROVIDERS}Basic",
            "anonymousUserRole": "anonymous",
            "superUserRoles": f"localhost,{SUPER_USER},admin",
            "tokenSecretKey": f"file://{key}",
            "basicAuthConf": checkout / "tests" / "test-conf" / ".htpasswd",
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"file://{own}",
        },
        own.read_text(),
    )
