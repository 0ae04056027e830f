"""Security of a local cluster: files of certificates, tokens and passwords, and the keys of configurations with them.

<folder>/security/
    ca.pem, ca.key                  the authority of all certificates
    <name>.pem, <name>.key          certificate and key of a process; `operator`: of the shell and the scripts
    <name>.store.pem                both in one file, for ZooKeeper and the web ports of bookies and auto recovery
    token.public, token.private     keys of tokens; brokers have the public one
    admin.token, broker.token       tokens of super users
    client.token                    token of a client, which may produce to and consume from public/default
    bookies.htpasswd                users of the bookies: one, of all processes that use bookies
    bookies.password                its name and password
    zookeeper.conf                  keys of a connection to ZooKeeper, for initialize-cluster-metadata

Secrets are in files that only their owner may read. Configurations and command lines have the paths.

To ZooKeeper all processes are one identity, the subject of their certificates: with zkEnableSecurity the creator of a
node has all rights, and a broker has to change nodes that another one created.
"""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from broker.security.authentication.making import encoded, key_pair, token_of_key
from quire.metadata.zookeeper.config import Tls
from quire.service.passwords import apr1
from tools.local_cluster.certificates import Authority, Issued
from tools.local_cluster.plan import Kind, Node, conf_text

AUTHORITY = "Quire local cluster"
MEMBER = "quire-cluster"
"""Common name of every certificate; see above."""
OPERATOR = "operator"
ADMIN, BROKER, CLIENT = "admin", "broker", "client"
"""Roles of tokens."""
ALGORITHM = "ES256"
_USER = "cluster"
_SALT = "0123456789abcdefghijklmnopqrstuvwxyz"
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_PASSWORD_CLASS = "quire.PasswordFile"
_TLS_CLASS = "org.apache.bookkeeper.tls.TLSContextFactory"
_X509 = "org.apache.zookeeper.server.auth.X509AuthenticationProvider"
_NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"

Settings = dict[str, object]


@dataclass(frozen=True, slots=True)
class Security:
    """Security files of the cluster in `cluster`."""

    cluster: Path

    @property
    def folder(self) -> Path:
        return self.cluster / "security"

    @property
    def trust(self) -> Path:
        return self.folder / "ca.pem"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def store(self, name: str) -> Path:
        return self.folder / f"{name}.store.pem"

    def token(self, role: str) -> Path:
        """Return the file with the token of a role: ADMIN, BROKER or CLIENT."""
        return self.folder / f"{role}.token"

    @property
    def password(self) -> Path:
        return self.folder / "bookies.password"

    @property
    def zookeeper_conf(self) -> Path:
        return self.folder / "zookeeper.conf"

    @property
    def zookeeper_tls(self) -> Tls:
        """Return the TLS of the operator's connections to ZooKeeper."""
        return Tls(
            ca_file=str(self.trust),
            certificate_file=str(self.certificate(OPERATOR)),
            key_file=str(self.key(OPERATOR)),
        )

    # --- making

    def make(self, names: Iterable[str]) -> None:
        """Make all files, with a certificate for each of `names` and for the operator."""
        self.folder.mkdir(mode=0o700)
        authority = Authority.make(AUTHORITY, _now()).issued
        _write(self.trust, authority.certificate)
        _write(self.key("ca"), authority.key, secret=True)
        for name in (*names, OPERATOR):
            self.issue(name)
        private, public = encoded(key_pair(ALGORITHM))
        _write(self.folder / "token.private", private, secret=True)
        _write(self.folder / "token.public", public)
        for role in (ADMIN, BROKER, CLIENT):
            _write(self.token(role), self.token_of(role).encode(), secret=True)
        password = secrets.token_hex(16)
        salt = "".join(secrets.choice(_SALT) for _ in range(8))
        _write(self.folder / "bookies.htpasswd", f"{_USER}:{apr1(password.encode(), salt)}\n".encode(), secret=True)
        _write(self.password, f"{_USER}:{password}\n".encode(), secret=True)
        _write(self.zookeeper_conf, conf_text(self._zookeeper_client(OPERATOR)).encode())

    def issue(self, name: str, *, expired: bool = False) -> None:
        """Make a new certificate and key for a process, in place of those it has. Each file is replaced by a rename."""
        authority = Authority.read(Issued(self.trust.read_bytes(), self.key("ca").read_bytes()))
        made = authority.issue(MEMBER, _now(), expired=expired)
        _write(self.key(name), made.key, secret=True)
        _write(self.certificate(name), made.certificate)
        if name.startswith((Kind.ZOOKEEPER.value, Kind.BOOKIE.value, Kind.RECOVERY.value)):
            _write(self.store(name), made.store, secret=True)

    def token_of(self, role: str, **claims: object) -> str:
        """Return a token of a role, signed with the cluster's key. `claims`: further ones, such as `exp`."""
        private = (self.folder / "token.private").read_bytes()
        return token_of_key(private, ALGORITHM, {"sub": role, **claims}, {})

    # --- keys of configurations

    def settings(self, node: Node) -> Settings:
        """Return the keys of a process's configuration that make it secure."""
        if node.kind is Kind.ZOOKEEPER:
            return self._zookeeper(node)
        if node.kind is Kind.BROKER:
            return self._broker(node)
        # (Without httpServerEnabled they have no web port.)
        web = {
            "httpServerTlsEnable": "true",
            "httpServerKeyStorePath": self.store(node.name),
            "httpServerTrustStorePath": self.trust,
        }
        return self._bookie(node.name, serves=node.kind is Kind.BOOKIE) | web

    def shell_settings(self) -> Settings:
        """Return those of the shell and of operators' scripts."""
        return self._bookie(OPERATOR, serves=False)

    def _zookeeper(self, node: Node) -> Settings:
        files = {"keyStore.location": self.store(node.name), "trustStore.location": self.trust}
        return {
            "serverCnxnFactory": _NETTY,
            "ssl.clientAuth": "need",
            "authProvider.x509": _X509,
            "client.certReload": "true",
            "sslQuorum": "true",
            "sslQuorumReloadCertFiles": "true",
            **{f"ssl.{key}": file for key, file in files.items()},
            **{f"ssl.quorum.{key}": file for key, file in files.items()},
        }

    def _zookeeper_client(self, name: str) -> Settings:
        return {
            "quireZooKeeperTls": "true",
            "quireZooKeeperTlsCaFile": self.trust,
            "quireZooKeeperTlsCertificateFile": self.certificate(name),
            "quireZooKeeperTlsKeyFile": self.key(name),
            "zkEnableSecurity": "true",
        }

    def _bookie(self, name: str, *, serves: bool) -> Settings:
        made: Settings = {
            "tlsProviderFactoryClass": _TLS_CLASS,
            "tlsKeyStoreType": "PEM",
            "tlsKeyStore": self.key(name),
            "tlsCertificatePath": self.certificate(name),
            "tlsTrustStoreType": "PEM",
            "tlsTrustStore": self.trust,
            "tlsHostnameVerificationEnabled": "true",
        }
        if serves:
            made |= {
                "tlsClientAuthentication": "true",
                "quireTlsRequired": "true",
                "bookieAuthProviderFactoryClass": _PASSWORD_CLASS,
                "quireBookiePasswordFile": self.folder / "bookies.htpasswd",
            }
        else:
            made |= {"clientAuthProviderFactoryClass": _PASSWORD_CLASS, "quireClientPasswordFile": self.password}
        return made | self._zookeeper_client(name)

    def _broker(self, node: Node) -> Settings:
        certificate, key = self.certificate(node.name), self.key(node.name)
        return {
            "brokerServicePort": "",
            "webServicePort": "",
            "brokerServicePortTls": node.ports[0],
            "webServicePortTls": node.ports[1],
            "tlsCertificateFilePath": certificate,
            "tlsKeyFilePath": key,
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": self.trust,
            "authenticationEnabled": "true",
            "authenticationProviders": _PROVIDER,
            "authenticateMetricsEndpoint": "true",
            "tokenPublicKey": f"file://{self.folder / 'token.public'}",
            "tokenPublicAlg": ALGORITHM,
            "brokerClientAuthenticationPlugin": _PLUGIN,
            "brokerClientAuthenticationParameters": f"file://{self.token(BROKER)}",
            "authorizationEnabled": "true",
            "superUserRoles": f"{ADMIN},{BROKER}",
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSTrustCertsFilePath": self.trust,
            "bookkeeperTLSCertificateFilePath": certificate,
            "bookkeeperTLSKeyFilePath": key,
            "bookkeeper_tlsHostnameVerificationEnabled": "true",
            "bookkeeperClientAuthenticationPlugin": _PASSWORD_CLASS,
            "bookkeeperClientAuthenticationParametersName": "quireClientPasswordFile",
            "bookkeeperClientAuthenticationParameters": self.password,
            **self._zookeeper_client(node.name),
        }


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _write(path: Path, data: bytes, *, secret: bool = False) -> None:
    """Write a file, in place of an older one, by a rename; only its owner may read a secret."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644), "wb") as file:
        file.write(data)
    os.replace(fresh, path)
