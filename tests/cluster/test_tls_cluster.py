"""A cluster whose brokers and bookies speak TLS and nothing else, the bookies with passwords, with official clients;
ZooKeeper as it was."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pulsar
import pytest

from tests.support.bookie_process import BookieProcess
from tests.support.broker_process import ADMIN, BrokerCluster, BrokerProcess
from tests.support.certificates import Authority
from tests.support.credentials import PASSWORD, USERS
from tests.support.process import start_all, wait_until
from tests.support.server import free_port
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = pytest.mark.cluster

TOPICS = [f"persistent://public/default/t{number}" for number in range(8)]


class SecureBroker(BrokerProcess):
    """A broker without ports that have no TLS."""

    def __init__(self, folder: Path, metadata_url: str, **settings: object) -> None:
        port, web_port = free_port(), free_port()
        given = {
            "brokerServicePort": "",
            "webServicePort": "",
            "brokerServicePortTls": port,
            "webServicePortTls": web_port,
            "advertisedAddress": "localhost",
            **settings,
        }
        super().__init__(folder, metadata_url, **given)
        self.id = f"localhost:{web_port}"
        self.url = f"pulsar+ssl://localhost:{port}"
        self.web = f"https://{self.id}"

    def ready_line(self) -> str:
        line = f"ready broker={self.url} web={self.web} broker_tls={self.url} web_tls={self.web} pid="
        return re.escape(line)


class SecureCluster:
    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess) -> None:
        self.authority = Authority(folder)
        own = self.authority.issue("localhost", "127.0.0.1")
        client = self.authority.issue("a-broker", common_name="a-broker", file="broker")
        users, known = folder / "bookies.htpasswd", folder / "bookies.password"
        users.write_text(USERS)
        known.write_text(f"admin:{PASSWORD}\n")
        self.cluster = BrokerCluster(folder, zookeeper, bookies=0)
        for _ in range(3):
            self.cluster.bookie(
                tlsProviderFactoryClass="org.apache.bookkeeper.tls.TLSContextFactory",
                tlsKeyStoreType="PEM",
                tlsKeyStore=own.key,
                tlsCertificatePath=own.certificate,
                tlsTrustStoreType="PEM",
                tlsTrustStore=self.authority.trust,
                tlsClientAuthentication="true",
                quireTlsRequired="true",
                bookieAuthProviderFactoryClass="quire.PasswordFile",
                quireBookiePasswordFile=users,
            )
        self.brokers = [
            SecureBroker(
                folder / f"secure{number}",
                self.cluster.metadata_url,
                tlsCertificateFilePath=own.certificate,
                tlsKeyFilePath=own.key,
                tlsTrustCertsFilePath=self.authority.trust,
                brokerClientTlsEnabled="true",
                brokerClientTrustCertsFilePath=self.authority.trust,
                bookkeeperTLSClientAuthentication="true",
                bookkeeperTLSTrustCertsFilePath=self.authority.trust,
                bookkeeperTLSCertificateFilePath=client.certificate,
                bookkeeperTLSKeyFilePath=client.key,
                bookkeeper_tlsHostnameVerificationEnabled="true",
                bookkeeperClientAuthenticationPlugin="quire.PasswordFile",
                bookkeeperClientAuthenticationParametersName="quireClientPasswordFile",
                bookkeeperClientAuthenticationParameters=known,
                managedLedgerDefaultEnsembleSize=3,
                managedLedgerDefaultWriteQuorum=3,
                managedLedgerDefaultAckQuorum=2,
                metadataStoreSessionTimeoutMillis=3000,
            )
            for number in range(2)
        ]

    @property
    def bookies(self) -> list[BookieProcess]:
        return self.cluster.bookies

    def client(self, *brokers: SecureBroker) -> pulsar.Client:
        hosts = ",".join(each.url.partition("://")[2] for each in brokers)
        return pulsar.Client(
            f"pulsar+ssl://{hosts}",
            tls_trust_certs_file_path=str(self.authority.trust),
            tls_validate_hostname=True,
            operation_timeout_seconds=30,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
        )

    def ask(self, broker: SecureBroker, method: str, path: str, **more: Any) -> httpx2.Response:
        context = ssl.create_default_context(cafile=str(self.authority.trust))
        with httpx2.Client(verify=context, trust_env=False, timeout=30) as http:
            return http.request(method, f"{broker.web}{path}", **more)

    def owner(self, topic: str) -> str:
        path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
        found = self.ask(self.brokers[0], "GET", path, follow_redirects=True).json()
        assert (found["brokerUrl"], found["httpUrl"], found["nativeUrl"]) == ("", "", "")
        assert found["httpUrlTls"].startswith("https://localhost:")
        return str(found["brokerUrlTls"])

    def end(self) -> None:
        for broker in self.brokers:
            broker.kill()
        self.cluster.end()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    zookeeper = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_ms=500).start()
    made = SecureCluster(tmp_path_factory.mktemp("cluster"), zookeeper)
    try:
        start_all(*made.bookies)
        start_all(*made.brokers)
        yield made
    finally:
        made.end()
        zookeeper.kill()


def test_a_cluster_of_tls_only_serves_moves_and_survives_the_loss_of_a_broker(secure: SecureCluster) -> None:
    one, two = secure.brokers
    client = secure.client(one, two)
    consumers = [client.subscribe(topic, "s") for topic in TOPICS]
    producers = [client.create_producer(topic) for topic in TOPICS]

    def exchange(number: int) -> None:
        for producer in producers:
            producer.send(b"%d" % number + bytes(3000))
        for consumer in consumers:
            expected = b"%d" % number + bytes(3000)
            received = consumer.receive(30_000)
            while received.data() != expected:
                # The client acknowledges in groups: the last one of before the move may have been lost.
                assert received.data() == b"%d" % (number - 1) + bytes(3000)
                consumer.acknowledge(received)
                received = consumer.receive(30_000)
            consumer.acknowledge(received)

    exchange(0)
    # A bundle is moved by a request over https, which the other broker answers with a redirect to https.
    owner = secure.owner(TOPICS[0])
    source, target = (one, two) if owner == one.url else (two, one)
    bundle = secure.ask(target, "GET", f"/lookup/v2/topic/{TOPICS[0].replace('://', '/')}/bundle").text
    path = f"{ADMIN}/namespaces/public/default/{bundle}/unload?destinationBroker={target.id}"
    answer = secure.ask(target, "PUT", path)
    assert (answer.status_code, answer.headers["Location"]) == (307, f"{source.web}{path}")
    assert secure.ask(source, "PUT", path).status_code == 204
    wait_until(lambda: secure.owner(TOPICS[0]) == target.url, "the topic has moved", 30)
    exchange(1)
    # A call about a partitioned topic asks the owners of its partitions.
    partitioned = f"{ADMIN}/persistent/public/default/parts"
    assert secure.ask(one, "PUT", f"{partitioned}/partitions", json=4).status_code == 204
    parts = client.create_producer("persistent://public/default/parts")
    parts.send(b"x")
    assert secure.ask(one, "DELETE", f"{partitioned}/partitions?force=true").status_code == 204
    source.kill()
    exchange(2)
    client.close()


def test_bookies_that_require_tls_answer_nothing_without(secure: SecureCluster) -> None:
    wire = secure.bookies[0].connect()
    with pytest.raises(ConnectionError):
        wire.ask(b"\x00\x00\x00\x18" + bytes(24))
