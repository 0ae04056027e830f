"""A server with TLS, tokens, passwords and authorization: one configuration file, which Apache Pulsar and Quire start
with, and the clients of it by role."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.servers import ADD_OPENS
from quire.servers.zookeeper.process import find_java
from tests.interop.java import START_DEADLINE_S
from tests.support import waiting
from tests.support.certificates import Authority
from tests.support.credentials import BASIC, PASSWORD, SECRET, TLS, TOKEN, USERS, token
from tests.support.server import StandaloneProcess, free_port

AUTH = "org.apache.pulsar.client.impl.auth."
_MEMORY = ("-Xms256m", "-Xmx768m", "-XX:MaxDirectMemorySize=768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_DRIVERS = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"


class Secured:
    """Files of a server in a folder, its ports, and the file of settings of Java's clients."""

    def __init__(self, folder: Path, **keys: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = Authority(folder)
        self.server = self.authority.issue("localhost", file="server", rsa=True)
        self.ports = [free_port() for _ in range(4)]
        self.url = f"pulsar+ssl://localhost:{self.ports[2]}"
        self.web = f"https://localhost:{self.ports[3]}"
        (folder / "secret.key").write_bytes(SECRET)
        (folder / "users").write_text(USERS)
        (folder / "own.token").write_text(token("broker"))
        self.keys = {**self._keys(), **keys}
        self.conf = folder / "standalone.conf"
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in self.keys.items()))

    def _keys(self) -> dict[str, object]:
        port, web, port_tls, web_tls = self.ports
        return {
            "clusterName": "standalone",
            "metadataStoreUrl": "",
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "localhost",
            "brokerServicePort": port,
            "webServicePort": web,
            "brokerServicePortTls": port_tls,
            "webServicePortTls": web_tls,
            "tlsCertificateFilePath": self.server.certificate,
            "tlsKeyFilePath": self.server.key,
            "tlsTrustCertsFilePath": self.authority.trust,
            "tlsCertRefreshCheckDurationSec": 1,
            "tlsAllowInsecureConnection": "false",
            "tlsRequireTrustedClientCertOnConnect": "false",
            "authenticationEnabled": "true",
            "authenticationProviders": f"{TOKEN},{TLS},{BASIC}",
            "authenticationRefreshCheckSeconds": 1,
            "tokenSecretKey": f"file://{self.folder}/secret.key",
            "basicAuthConf": f"file://{self.folder}/users",
            "authorizationEnabled": "true",
            "superUserRoles": "admin,broker,operator",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": self.authority.trust,
            "tlsHostnameVerificationEnabled": "true",
            "brokerClientAuthenticationPlugin": f"{AUTH}AuthenticationToken",
            "brokerClientAuthenticationParameters": f"file://{self.folder}/own.token",
            "managedLedgerDefaultEnsembleSize": 1,
            "managedLedgerDefaultWriteQuorum": 1,
            "managedLedgerDefaultAckQuorum": 1,
            "transactionCoordinatorEnabled": "true",
            "systemTopicEnabled": "true",
            "topicLevelPoliciesEnabled": "true",
            "acknowledgmentAtBatchIndexLevelEnabled": "true",
            "loadBalancerEnabled": "false",
        }

    def roles(self) -> Mapping[str, str]:
        """Return by role the class of authentication of a client, and its parameters; empty: none."""
        made = {each: f"{AUTH}AuthenticationToken token:{token(each)}" for each in ("admin", "boss", "guest", "app")}
        made["forged"] = f"{AUTH}AuthenticationToken token:{token('admin', key=bytes(64))}"
        made["expired"] = f"{AUTH}AuthenticationToken token:{token('admin', exp=int(time.time()) - 60)}"
        made["nobody"] = ""
        made["wrong"] = self._password("admin", "wrong")
        made["basic"] = self._password("admin", PASSWORD)
        made["lowly"] = self._password("old", "myPassword")
        for name, role in (("certified", "operator"), ("member", "member")):
            pair = self.authority.issue("client.localhost", common_name=role, file=name, rsa=True)
            made[name] = f"{AUTH}AuthenticationTls tlsCertFile:{pair.certificate},tlsKeyFile:{pair.key}"
        return made

    @staticmethod
    def _password(user: str, password: str) -> str:
        return f'{AUTH}AuthenticationBasic {{"userId":"{user}","password":"{password}"}}'

    def clients(self) -> Path:
        """Write the settings of the program `Calls`, and return their file."""
        lines = [f"url={self.url}", f"web={self.web}", f"trust={self.authority.trust}"]
        lines += [f"role.{name}={given}" for name, given in self.roles().items()]
        path = self.folder / "clients.properties"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    @contextmanager
    def served(self) -> Iterator[SecuredQuire]:
        """Run Quire with this configuration file; at the end check its log."""
        server = SecuredQuire(self)
        try:
            yield server.start()
        finally:
            server.kill()
        server.check_log()

    def pulsar(self) -> SecuredPulsar:
        """Return Apache Pulsar with this configuration file, not started."""
        return SecuredPulsar(self)


class SecuredQuire(StandaloneProcess):
    """Quire standalone with a configuration file that also has its ports."""

    def __init__(self, secured: Secured) -> None:
        super().__init__(secured.folder, secured.keys)
        self.port, self.web_port = secured.ports[:2]

    def options(self) -> list[str]:
        return ["--data-dir", str(self.data), "--conf", str(self.conf)]


class SecuredPulsar:
    """Apache Pulsar standalone, one process; killed at the end of the block."""

    def __init__(self, secured: Secured) -> None:
        self._secured = secured
        self.log_path = secured.folder / "pulsar.log"

    def __enter__(self) -> SecuredPulsar:
        assert "QUIRE_INTEROP_PULSAR_SERVER" in os.environ, "run this by scripts/test --interop"
        made = os.environ["QUIRE_INTEROP_PULSAR_SERVER"]
        drivers = [
            f"-Dbookkeeper.metadata.{each.lower()}.drivers={_DRIVERS}{each}Driver" for each in ("Bookie", "Client")
        ]
        command = [find_java(), *_MEMORY, *ADD_OPENS, *drivers, "-cp", f"{made}/classes:{made}/lib/*"]
        command += ["-Dlog4j.configurationFile=log4j2-server.xml", "org.apache.pulsar.PulsarStandaloneStarter"]
        command += ["--config", str(self._secured.conf), "-nss", "-nfw"]
        folder = self._secured.folder
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        with ExitStack() as unless_ready:
            unless_ready.callback(self.kill)
            waiting.wait_until(self._is_ready, "Pulsar serves", within=2 * START_DEADLINE_S)
            unless_ready.pop_all()
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, f"Pulsar ended:\n{self.log_path.read_text()[-4000:]}"
        return "Created namespace public/default" in self.log_path.read_text()

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
