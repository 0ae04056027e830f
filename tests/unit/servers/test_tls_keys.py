"""Keys of TLS of brokers and bookies: what each of them changes, and what is refused with its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from quire.servers.bookie.config import BOOKIE
from quire.servers.broker.config import BROKER
from quire.servers.standalone.config import STANDALONE
from quire.service.config import keys_of
from quire.service.errors import ConfigError
from quire.service.process_conf import Process
from quire.world.tls_options import TlsOptions

PEM_FILES: dict[str, object] = {
    "brokerServicePortTls": 6651,
    "webServicePortTls": 8443,
    "tlsCertificateFilePath": "/own.pem",
    "tlsKeyFilePath": "/own.key",
    "tlsTrustCertsFilePath": "/ca.pem",
    "brokerClientTlsEnabled": True,
    "brokerClientTrustCertsFilePath": "/ca.pem",
    "brokerClientCertificateFilePath": "/client.pem",
    "brokerClientKeyFilePath": "/client.key",
    "bookkeeperTLSClientAuthentication": True,
    "bookkeeperTLSCertificateFilePath": "/client.pem",
    "bookkeeperTLSKeyFilePath": "/client.key",
}
STORES: dict[str, object] = {
    **PEM_FILES,
    "tlsEnabledWithKeyStore": True,
    "tlsKeyStoreType": "PKCS12",
    "tlsKeyStore": "/own.p12",
    "tlsTrustStoreType": "PKCS12",
    "tlsTrustStore": "/ca.p12",
    "brokerClientTlsEnabledWithKeyStore": True,
    "brokerClientTlsKeyStoreType": "PKCS12",
    "brokerClientTlsKeyStore": "/client.p12",
    "brokerClientTlsTrustStoreType": "PKCS12",
    "brokerClientTlsTrustStore": "/ca.p12",
}
BOOKIES: dict[str, object] = {
    "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
    "tlsKeyStoreType": "PEM",
    "tlsKeyStore": "/own.key",
    "tlsCertificatePath": "/own.pem",
    "tlsTrustStoreType": "PEM",
    "tlsTrustStore": "/ca.pem",
}
CHANGED: dict[str, object] = {
    "tlsProviderFactoryClass": "",
    "tlsProtocols": ("TLSv1.3",),
    "webServiceTlsProtocols": ("TLSv1.3",),
    "brokerClientTlsProtocols": ("TLSv1.3",),
    "tlsEnabledProtocols": ("TLSv1.3",),
    "tlsKeyStoreType": "PKCS12",
    "tlsTrustStoreType": "PKCS12",
    "bookkeeperTLSKeyFileType": "PKCS12",
    "bookkeeperTLSTrustCertTypes": "PKCS12",
}
"""Valid values of keys for which "other" is none."""


def of_broker(values: Mapping[str, object]) -> tuple[Any, ...]:
    made = BROKER.build(values)
    return (
        made.tls.options(),
        made.tls.options(web=True),
        made.client_tls.options(),
        made.ledger_tls.options(),
        made.tls.refresh_s,
        made.ledger_tls.interval_s,
    )


def of_bookie(values: Mapping[str, object]) -> tuple[Any, ...]:
    keys = BOOKIE.build(values).tls
    return keys.server(), keys.client(), keys.interval_s, keys.handshake_timeout_s, keys.required


def without_effect(
    process: Process[Any], parts: tuple[str, ...], options: Callable[..., object], *bases: dict[str, object]
) -> list[str]:
    """Return the keys that change nothing on any of the bases."""
    found = []
    for part in parts:
        for name, key in keys_of(process.parts()[part]).items():
            outcomes = []
            for base in bases:
                now = base.get(name, key.default)
                value: object = "/other"
                if isinstance(now, bool):
                    value = not now
                elif isinstance(now, int | float):
                    value = 7
                elif isinstance(now, tuple):
                    value = CHANGED.get(name, ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",))
                elif name in CHANGED and CHANGED[name] != now:
                    value = CHANGED[name]
                with suppress(ConfigError):
                    outcomes.append(options({**base, name: value}) != options(base))
            if not any(outcomes):
                found.append(name)
    return found


def test_every_key_of_a_broker_changes_something() -> None:
    refused = [
        "tlsKeyStoreType",
        "tlsTrustStoreType",
        "brokerClientTlsKeyStoreType",
        "brokerClientTlsTrustStoreType",
        "bookkeeperTLSProviderFactoryClass",
    ]
    parts = ("tls", "client_tls", "ledger_tls")
    found = without_effect(BROKER, parts, of_broker, PEM_FILES, STORES)
    assert [name for name in found if name not in refused] == []


def test_every_key_of_a_bookie_changes_something() -> None:
    stores = {**BOOKIES, "tlsKeyStoreType": "PKCS12", "tlsKeyStorePasswordPath": "/p"}
    assert without_effect(BOOKIE, ("tls",), of_bookie, BOOKIES, stores) == []


def test_the_two_ports_have_their_own_versions_and_ciphers() -> None:
    made = BROKER.build({**PEM_FILES, "tlsProtocols": ("TLSv1.2",), "webServiceTlsProtocols": ("TLSv1.3",)}).tls
    assert made.options().allowed_versions == ("TLSv1.2",)
    assert made.options(web=True).allowed_versions == ("TLSv1.3",)


def test_without_ports_files_of_tls_are_not_looked_at() -> None:
    assert BROKER.build({"tlsKeyFilePath": "/only.key", "tlsKeyStoreType": "JKS"}).listen.has_tls is False


def test_a_bookie_reads_its_files_once_if_it_is_told_so() -> None:
    assert BOOKIE.build({**BOOKIES, "tlsCertFilesRefreshDurationSeconds": 0}).tls.interval_s == math.inf


def test_passwords_are_not_in_what_is_printed() -> None:
    names = ("tlsKeyStorePassword", "tlsTrustStorePassword", "brokerClientTlsKeyStorePassword")
    made = BROKER.build({**STORES, **dict.fromkeys(names, "secret")})
    assert made.tls.options().key_password == "secret"
    assert "secret" not in repr(made)
    assert "secret" not in repr(made.tls.options())


BROKER_PROBLEMS: list[tuple[dict[str, object], str]] = [
    ({"brokerServicePortTls": 6651}, "tlsCertificateFilePath, tlsKeyFilePath: a port with TLS needs them"),
    ({"tlsEnabled": True}, "tlsEnabled=true: set brokerServicePortTls=6651 and webServicePortTls=8443"),
    ({"brokerServicePort": None}, "brokerServicePort, brokerServicePortTls: one of them must be set"),
    ({"webServicePort": None}, "webServicePort, webServicePortTls: one of them must be set"),
    ({**PEM_FILES, "tlsTrustCertsFilePath": "", "tlsRequireTrustedClientCertOnConnect": True}, "tlsTrustCertsFilePath"),
    (
        {**PEM_FILES, "tlsAllowInsecureConnection": True, "tlsRequireTrustedClientCertOnConnect": True},
        "tlsRequireTrustedClientCertOnConnect=true contradicts tlsAllowInsecureConnection=true",
    ),
    ({**PEM_FILES, "tlsProtocols": ("TLSv1.1",)}, "TLSv1.1 is not supported; allow TLSv1.2 or TLSv1.3"),
    ({**STORES, "tlsKeyStoreType": "JKS"}, "tlsKeyStoreType, .*keytool -importkeystore"),
]


@pytest.mark.parametrize(("values", "reason"), BROKER_PROBLEMS)
@pytest.mark.parametrize("process", [BROKER, STANDALONE], ids=["broker", "standalone"])
def test_what_cannot_be_obeyed_is_refused_with_the_key(
    process: Process[Any], values: dict[str, object], reason: str
) -> None:
    keys = process.keys()
    known = {name: value for name, value in values.items() if name in keys}
    with pytest.raises(ConfigError, match=reason):
        process.build(known)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({**PEM_FILES, "brokerClientTlsEnabled": False, "brokerServicePort": None}, "need brokerClientTlsEnabled=true"),
        ({**PEM_FILES, "brokerClientTlsEnabled": False, "webServicePort": None}, "need brokerClientTlsEnabled=true"),
        (
            {**PEM_FILES, "brokerClientKeyFilePath": ""},
            "brokerClientKeyFilePath: a TLS certificate",
        ),
        ({**PEM_FILES, "bookkeeperTLSKeyFilePath": ""}, "bookkeeperTLSCertificateFilePath"),
        ({**PEM_FILES, "bookkeeperTLSKeyFileType": "JKS"}, "bookkeeperTLSTrustCertTypes: .*keytool"),
        (
            {**PEM_FILES, "bookkeeperTLSProviderFactoryClass": "a.B"},
            "ProviderFactoryClass=a.B: classes of",
        ),
    ],
)
def test_connections_of_a_broker_that_cannot_be_made_are_refused_with_the_key(
    values: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        BROKER.build(values)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({**BOOKIES, "tlsProviderFactoryClass": "a.B"}, "tlsProviderFactoryClass=a.B: classes of the JVM"),
        ({**BOOKIES, "tlsKeyStore": ""}, "tlsKeyStore, tlsCertificatePath: a bookie with TLS needs"),
        ({**BOOKIES, "tlsTrustStore": "", "tlsClientAuthentication": True}, "tlsClientAuthentication=true needs"),
        ({**BOOKIES, "tlsKeyStoreType": "JKS"}, "keytool -importkeystore"),
        ({"quireTlsRequired": True}, "quireTlsRequired=true needs tlsProviderFactoryClass"),
    ],
)
def test_what_a_bookie_cannot_obey_is_refused_with_the_key(values: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BOOKIE.build(values)


def test_a_broker_with_tls_only_is_possible() -> None:
    made = BROKER.build({**PEM_FILES, "brokerServicePort": None, "webServicePort": None})
    assert (made.listen.broker_port, made.listen.web_port, made.listen.broker_port_tls) == (None, None, 6651)
    options = made.client_tls.options()
    assert isinstance(options, TlsOptions)
    assert options.check_host, "host names are verified unless configured otherwise"
