"""Keys about authentication at bookies of bookies, their clients, and brokers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bookie.sessions.authentication import CertificateRoles, Passwords
from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.bookie.auth_keys import (
    CERTIFICATE_CLASS,
    FILE_MAX,
    PASSWORD_CLASS,
    BookieAuthKeys,
    BookieClientAuthKeys,
    bookie_authentication,
    bookie_credentials,
)
from quire.servers.bookie.config import BOOKIE
from quire.servers.broker.config import BROKER
from quire.servers.broker.ledger_auth_keys import LedgerAuthKeys
from quire.servers.cluster_config import SHELL
from quire.service.errors import ConfigError
from tests.support.credentials import USERS


class Inline:
    """Offload that runs its jobs at once."""

    async def run(self, job: Any, *, name: str = "") -> Any:
        return job()


WORLD: Any = SimpleNamespace(offload=Inline())


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"factory": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"}, "cannot be loaded"),
        ({"factory": "a.quire.PasswordFile", "password_file": "/users"}, "cannot be loaded"),
        ({"factory": PASSWORD_CLASS}, "need each other"),
        ({"password_file": "/users"}, "need each other"),
        ({"factory": CERTIFICATE_CLASS}, "need each other"),
        ({"roles": ("broker",)}, "need each other"),
        ({"factory": PASSWORD_CLASS, "password_file": "/users", "roles": ("broker",)}, "need each other"),
    ],
)
def test_a_bookie_that_was_to_authenticate_does_not_start_without(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        BookieAuthKeys(**given)  # type: ignore[arg-type]


def test_roles_of_certificates_need_tls_with_certificates(tmp_path: Path) -> None:
    conf = tmp_path / "bk.conf"
    keys = f"bookieAuthProviderFactoryClass={CERTIFICATE_CLASS}\nauthorizedRoles=broker,auditor\n"
    tls = "tlsProviderFactoryClass=TLSContextFactory\ntlsKeyStoreType=PEM\ntlsKeyStore=/k\ntlsCertificatePath=/c\n"
    for without in ("", tls):
        conf.write_text(keys + without)
        with pytest.raises(ConfigError, match="tlsClientAuthentication"):
            BOOKIE.load(conf)
    conf.write_text(f"{keys}{tls}tlsClientAuthentication=true\ntlsTrustStoreType=PEM\ntlsTrustStore=/t\n")
    assert BOOKIE.load(conf).auth.roles == ("broker", "auditor")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"factory": "x.Y"}, "cannot be loaded"),
        ({"factory": CERTIFICATE_CLASS}, "cannot be loaded"),
        ({"factory": PASSWORD_CLASS}, "need each other"),
        ({"password_file": "/p"}, "need each other"),
    ],
)
def test_keys_of_clients_that_contradict_each_other_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        BookieClientAuthKeys(**given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"plugin": "org.apache.bookkeeper.sasl.SASLClientProviderFactory"}, "cannot be loaded"),
        ({"plugin": PASSWORD_CLASS}, "ParametersName=quireClientPasswordFile"),
        ({"plugin": PASSWORD_CLASS, "parameters_name": "other", "parameters": "s3cr3t"}, "ParametersName="),
        ({"parameters": "s3cr3t"}, "needs bookkeeperClientAuthenticationPlugin"),
    ],
)
def test_keys_of_brokers_that_contradict_each_other_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        LedgerAuthKeys(**given)
    assert "s3cr3t" not in str(caught.value)


def test_one_file_serves_a_bookie_auto_recovery_and_the_shell(tmp_path: Path) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text(
        f"bookieAuthProviderFactoryClass={PASSWORD_CLASS}\nquireBookiePasswordFile=/users\n"
        f"clientAuthProviderFactoryClass={PASSWORD_CLASS}\nquireClientPasswordFile=/own\n"
    )
    assert BOOKIE.load(conf).auth.password_file == "/users"
    assert AUTORECOVERY.load(conf).auth.password_file == "/own"
    assert SHELL.load(conf).auth.password_file == "/own"
    conf.write_text(
        f"bookkeeperClientAuthenticationPlugin={PASSWORD_CLASS}\n"
        "bookkeeperClientAuthenticationParametersName=quireClientPasswordFile\n"
        "bookkeeperClientAuthenticationParameters=/own\n"
    )
    assert BROKER.load(conf).ledger_auth.parameters == "/own"


async def test_the_files_become_what_they_are_for(tmp_path: Path) -> None:
    users, own = tmp_path / "users", tmp_path / "own"
    users.write_text(USERS)
    own.write_text("admin:123456\n")
    for off in ("", "null"):
        assert await bookie_authentication(WORLD, BookieAuthKeys(factory=off)) is None
    made = await bookie_authentication(WORLD, BookieAuthKeys(factory=PASSWORD_CLASS, password_file=str(users)))
    assert made is not None
    assert isinstance(made.method, Passwords)
    assert made.method.by_payload(b"admin:123456") == "admin"
    made = await bookie_authentication(WORLD, BookieAuthKeys(factory=CERTIFICATE_CLASS, roles=("broker",)))
    assert made is not None
    assert made.method == CertificateRoles(frozenset({"broker"}))
    assert await bookie_credentials(WORLD, "") is None
    known = await bookie_credentials(WORLD, str(own))
    assert known is not None
    assert known.payload() == b"admin:123456"


async def test_a_file_that_cannot_be_used_is_an_error_that_shows_nothing_of_it(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    for content in ("", "admin:s3cr3t", "s3cr3t", "a:s3cr3t\nb:s3cr3t\n"):
        bad.write_text(content)
        with pytest.raises(ConfigError, match="quireBookiePasswordFile") as caught:
            await bookie_authentication(WORLD, BookieAuthKeys(factory=PASSWORD_CLASS, password_file=str(bad)))
        assert "s3cr3t" not in str(caught.value)
        if content != "admin:s3cr3t":
            with pytest.raises(ConfigError, match="quireClientPasswordFile") as caught:
                await bookie_credentials(WORLD, str(bad))
            assert "s3cr3t" not in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        await bookie_credentials(WORLD, str(tmp_path / "missing"))
    bad.write_bytes(b"a" * (FILE_MAX + 1))
    with pytest.raises(ConfigError, match="more than"):
        await bookie_credentials(WORLD, str(bad))
