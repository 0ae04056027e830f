"""Keys of BookKeeper's bk_server.conf about authentication: of a bookie, and of its clients that read the same file,
which are auto recovery and the shell; and what is made of them.

Source: BookKeeper's AuthProviderFactoryFactory and BookieAuthZFactory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quire.service.config import conf_key
from quire.service.errors import ConfigError
from quire.world.doors import World

if TYPE_CHECKING:
    from bookie.sessions.authentication import OfferedAuthentication
    from quire.ledger.bookies.authentication import BookieCredentials

PASSWORD_CLASS: Final = "quire.PasswordFile"
"""Value of the keys of classes for Quire's plug-in."""
CERTIFICATE_CLASS: Final = "org.apache.bookkeeper.tls.BookieAuthZFactory"
CLIENT_FILE_KEY: Final = "quireClientPasswordFile"
FILE_MAX: Final = 1 << 20
"""Bytes that a file of users may have."""
_NONE: Final = ("", "null")


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieAuthKeys:
    """Authentication that a bookie asks for. Raises ValueError if the keys contradict each other."""

    factory: str = conf_key(
        "bookieAuthProviderFactoryClass",
        "",
        doc="quire.PasswordFile: clients need a user and password of quireBookiePasswordFile. "
        "org.apache.bookkeeper.tls.BookieAuthZFactory: they need TLS and a certificate with a role of authorizedRoles. "
        "Empty: bookies serve everyone.",
    )
    password_file: str = conf_key(
        "quireBookiePasswordFile", "", doc="Users of quire.PasswordFile: a file of htpasswd -m, read at the start."
    )
    failures_per_address_max: int = conf_key(
        "quireBookieFailedLoginsPerAddressPerMinute",
        600,
        minimum=0,
        doc="Different wrong credentials of one address in a minute, above which others of it are refused unchecked "
        "until the minute is over, unless they were right before. 0: no limit.",
    )
    roles: tuple[str, ...] = conf_key(
        "authorizedRoles",
        (),
        doc="Roles of BookieAuthZFactory: a client's is the first of the OU of its certificate, such as 0:broker.",
    )

    def __post_init__(self) -> None:
        if self.factory not in (*_NONE, PASSWORD_CLASS, CERTIFICATE_CLASS):
            raise ValueError(
                f"bookieAuthProviderFactoryClass={self.factory}: classes of the JVM cannot be loaded; set it to "
                f"{PASSWORD_CLASS} or {CERTIFICATE_CLASS}, or leave it empty"
            )
        if bool(self.password_file) != (self.factory == PASSWORD_CLASS):
            raise ValueError(
                f"bookieAuthProviderFactoryClass={PASSWORD_CLASS} and quireBookiePasswordFile need each other"
            )
        if bool(self.roles) != self.by_certificate:
            raise ValueError(f"bookieAuthProviderFactoryClass={CERTIFICATE_CLASS} and authorizedRoles need each other")

    @property
    def by_certificate(self) -> bool:
        return self.factory == CERTIFICATE_CLASS


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieClientAuthKeys:
    """Credentials of clients of bookies. Raises ValueError if the keys contradict each other."""

    factory: str = conf_key(
        "clientAuthProviderFactoryClass",
        "",
        doc="quire.PasswordFile: clients that read this file, auto recovery, the shell and a bookie's HTTP port, send "
        "bookies the user and password of quireClientPasswordFile. Empty: they have none, or have a certificate.",
    )
    password_file: str = conf_key(
        "quireClientPasswordFile", "", doc="File with one line, user:password, for quire.PasswordFile. Use it with TLS."
    )

    def __post_init__(self) -> None:
        if self.factory not in (*_NONE, PASSWORD_CLASS):
            raise ValueError(
                f"clientAuthProviderFactoryClass={self.factory}: classes of the JVM cannot be loaded; set it to "
                f"{PASSWORD_CLASS}, or leave it empty (also with certificates)"
            )
        if bool(self.password_file) != (self.factory == PASSWORD_CLASS):
            raise ValueError(f"clientAuthProviderFactoryClass={PASSWORD_CLASS} and {CLIENT_FILE_KEY} need each other")


async def bookie_authentication(world: World, keys: BookieAuthKeys) -> OfferedAuthentication | None:
    """Return the authentication that a bookie asks for; None: none. ConfigError: its file cannot be used."""
    if keys.factory in _NONE:
        return None
    # Imported here, because most bookies do not need it.
    from bookie.sessions.authentication import CertificateRoles, OfferedAuthentication, Passwords
    from quire.service.password_files import read_users

    if keys.by_certificate:
        return OfferedAuthentication(CertificateRoles(frozenset(keys.roles)))
    data = await _read(world, "quireBookiePasswordFile", keys.password_file)
    try:
        return OfferedAuthentication(Passwords(read_users(data)), failures_max=keys.failures_per_address_max)
    except ValueError as error:
        raise ConfigError(f"quireBookiePasswordFile: {error}") from None


async def bookie_credentials(world: World, password_file: str, key: str = CLIENT_FILE_KEY) -> BookieCredentials | None:
    """Return the credentials in the file that `key` names; None: it names none. ConfigError: it cannot be used."""
    if not password_file:
        return None
    from quire.ledger.bookies.authentication import read_credentials

    data = await _read(world, key, password_file)
    try:
        return read_credentials(data)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None


async def _read(world: World, key: str, path: str) -> bytes:
    try:
        data = await world.offload.run(partial(_bytes, path), name="password file")
    except OSError as error:
        raise ConfigError(f"{key}={path}: {error.strerror or error}") from error
    if len(data) > FILE_MAX:
        raise ConfigError(f"{key}={path}: it has more than {FILE_MAX} bytes")
    return data


def _bytes(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(FILE_MAX + 1)
