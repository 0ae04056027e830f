"""Keys of Pulsar's broker.conf about the authentication of a broker at bookies. Source: BookKeeperClientFactoryImpl."""

from __future__ import annotations

from dataclasses import dataclass

from quire.servers.bookie.auth_keys import CLIENT_FILE_KEY, PASSWORD_CLASS
from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAuthKeys:
    """Credentials of a broker for bookies. Raises ValueError if the keys contradict each other."""

    plugin: str = conf_key(
        "bookkeeperClientAuthenticationPlugin",
        "",
        doc="quire.PasswordFile: the broker sends bookies a user and password. Empty: it has none, or a certificate.",
    )
    parameters_name: str = conf_key(
        "bookkeeperClientAuthenticationParametersName",
        "",
        doc="With quire.PasswordFile: quireClientPasswordFile, the key of bookies' clients that the next key is for.",
    )
    parameters: str = conf_key(
        "bookkeeperClientAuthenticationParameters",
        "",
        doc="With quire.PasswordFile: a file with one line, user:password. Use it with TLS.",
    )

    def __post_init__(self) -> None:
        if not self.plugin:
            if self.parameters:
                raise ValueError("bookkeeperClientAuthenticationParameters needs bookkeeperClientAuthenticationPlugin")
            return
        if self.plugin != PASSWORD_CLASS:
            raise ValueError(
                f"bookkeeperClientAuthenticationPlugin={self.plugin}: classes of the JVM cannot be loaded; set it to "
                f"{PASSWORD_CLASS}, or leave it empty (also with certificates)"
            )
        if self.parameters_name != CLIENT_FILE_KEY or not self.parameters:
            raise ValueError(
                f"bookkeeperClientAuthenticationPlugin={PASSWORD_CLASS} needs "
                f"bookkeeperClientAuthenticationParametersName={CLIENT_FILE_KEY}, and the path of a file in "
                "bookkeeperClientAuthenticationParameters"
            )
