"""Files of the originals in which security was switched on: they load secured, or the error names the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.security.authentication.authentication import Handshake
from broker.security.authentication.credentials import Presented
from broker.security.authentication.errors import AuthenticationError
from quire.servers.bookie.config import BOOKIE
from quire.servers.broker.config import BROKER
from quire.servers.broker.security import authentication_of, check_security
from quire.servers.standalone.config import STANDALONE
from quire.service.errors import ConfigError
from quire.service.original_keys import BOOKKEEPER, PULSAR
from tests.support.credentials import BASIC, DATA_URL, OPEN_ID, PACKAGE, TLS, TOKEN, USERS, token, url
from tests.support.refusals import refuses
from tests.support.stock_conf import stock

PROCESSES: dict[str, Any] = {"broker": (BROKER, (PULSAR,)), "standalone": (STANDALONE, (PULSAR, BOOKKEEPER))}
ONE_BOOKIE = {f"managedLedgerDefault{each}": "1" for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
WAYS = {
    TOKEN: {"tokenSecretKey": DATA_URL},
    BASIC: {"basicAuthConf": url(USERS.encode())},
    TLS: {},
}


def load(process: str, folder: Path, **changed: str) -> Any:
    """Return the configuration of a stock file with these changes."""
    reader, products = PROCESSES[process]
    path = folder / "its.conf"
    changed = {**(ONE_BOOKIE if process == "standalone" else {}), **changed}
    path.write_text("".join(f"{name}={value}\n" for name, value in stock(products, **changed).items()))
    return reader.load(path)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("provider", WAYS)
def test_a_stock_file_with_authentication_switched_on_refuses_who_has_no_credentials(
    process: str, provider: str, tmp_path: Path
) -> None:
    config = load(
        process,
        tmp_path,
        authenticationEnabled="true",
        authorizationEnabled="true",
        superUserRoles="admin",
        authenticationProviders=provider,
        **WAYS[provider],
    )
    assert config.authorization.enabled
    assert config.authorization.super_users == ("admin",)
    check_security(config.authentication, config.authorization)
    checks = authentication_of(config.authentication, config.authorization)
    assert checks is not None
    for method in ("none", "token", "basic", "tls"):
        with pytest.raises(AuthenticationError):
            checks.login(Handshake(method, Presented(b"")), 0)
    with pytest.raises(AuthenticationError):
        checks.of_request({}, None, 0)
    if provider == TOKEN:
        login = checks.login(Handshake("token", Presented(token("admin").encode())), 0)
        assert login.principal.role == "admin"


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize(
    ("key", "value", "more"),
    [
        ("authenticationProviders", f"{PACKAGE}AuthenticationProviderSasl", {}),
        ("authenticationProviders", f"{PACKAGE}AuthenticationProviderAthenz", {}),
        ("authenticationProviders", "com.example.Ours", {}),
        ("authenticationProviders", "", {}),
        ("authenticationProviders", f"{TOKEN},com.example.Ours", {"tokenSecretKey": DATA_URL}),
        ("tokenSecretKey", "", {"authenticationProviders": TOKEN}),
        ("basicAuthConf", "", {"authenticationProviders": BASIC}),
        ("openIDAllowedTokenIssuers", "", {"authenticationProviders": OPEN_ID}),
        ("authorizationEnabled", "true", {"authenticationEnabled": "false"}),
        ("authorizationProvider", "com.example.Ours", {"authenticationProviders": TOKEN, "tokenSecretKey": DATA_URL}),
        ("brokerClientAuthenticationPlugin", "com.example.Ours", {"authenticationProviders": TOKEN}),
    ],
)
def test_security_that_is_not_there_stops_the_start_with_the_key_named(
    process: str, key: str, value: str, more: dict[str, str], tmp_path: Path
) -> None:
    changed = {"authenticationEnabled": "true", "tokenSecretKey": DATA_URL, **more, key: value}

    def start() -> None:
        config = load(process, tmp_path, **changed)
        check_security(config.authentication, config.authorization)

    refuses(ConfigError, start, match=key)


def bookie(folder: Path, **changed: str) -> Any:
    path = folder / "bk.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in stock((BOOKKEEPER,), **changed).items()))
    return BOOKIE.load(path)


def test_a_stock_file_of_a_bookie_with_tls_and_roles_loads_secured(tmp_path: Path) -> None:
    config = bookie(
        tmp_path,
        tlsProviderFactoryClass="org.apache.bookkeeper.tls.TLSContextFactory",
        tlsProvider="OpenSSL",
        tlsClientAuthentication="true",
        tlsKeyStoreType="PKCS12",
        tlsKeyStore="/own.p12",
        tlsTrustStoreType="PKCS12",
        tlsTrustStore="/ca.p12",
        bookieAuthProviderFactoryClass="org.apache.bookkeeper.tls.BookieAuthZFactory",
        authorizedRoles="broker",
    )
    assert config.auth.by_certificate
    assert config.tls.server().require_certificate


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bookieAuthProviderFactoryClass", "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"),
        ("tlsProviderFactoryClass", "com.example.Factory"),
        ("httpServerTlsEnable", "true"),
    ],
)
def test_security_of_a_bookie_that_is_not_there_stops_the_start_with_the_key_named(
    key: str, value: str, tmp_path: Path
) -> None:
    refuses(ConfigError, lambda: bookie(tmp_path, httpServerEnabled="true", **{key: value}), match=key)
