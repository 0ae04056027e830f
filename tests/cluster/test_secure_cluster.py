"""A cluster of `scripts/cluster up --secure`: official clients with TLS and tokens while processes are killed, what is
refused, certificates that are replaced, and a search for secrets in everything that the processes say.

The tests run in the order of this file on one cluster: the search comes last, when there is most to find.
"""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
import trio

from broker.security.authorization.routes import ROUTES
from quire.ledger import open_client
from quire.ledger.bookies.authentication import BookieCredentials, read_credentials
from quire.ledger.errors import LedgerError
from quire.metadata.errors import MetadataUnavailableError, NotAllowedError
from quire.metadata.zookeeper.config import ZooKeeperConfig
from quire.metadata.zookeeper.store import open_store
from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.bookie.config import BOOKIE
from quire.servers.broker.config import BROKER
from quire.servers.broker.security import authentication_of, credentials_of
from quire.servers.cluster_config import SHELL
from quire.wire.bookkeeper import v3
from quire.wire.bookkeeper.entry import DigestType
from quire.world.real import real_world
from quire.world.tls_options import TlsOptions
from tests.support.listening import answers_in_plain, certificate_of, listening_ports
from tests.support.process import wait_until
from tests.support.secrets import Secrets
from tools.local_cluster import rest
from tools.local_cluster.__main__ import main
from tools.local_cluster.certificates import Authority, Issued
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.lookup import owner_port
from tools.local_cluster.plan import HOST, Kind, Node
from tools.local_cluster.security import ADMIN, CLIENT, OPERATOR, Security
from tools.local_cluster.store import metadata_store

pytestmark = pytest.mark.cluster

TOPICS = [f"persistent://public/default/secure{number}" for number in range(4)]
DIGEST = "digest-password-of-the-test"
"""Password of a user of ZooKeeper, which a configuration contains as it is."""
SOON_S = 1
"""Time between two looks at certificates."""
ADMIN_V2 = "/admin/v2"
COPIES = 3
"""Bookies of each ledger."""


class Secure:
    """The cluster, and what a test needs of it."""

    def __init__(self, cluster: LocalCluster, said: str) -> None:
        self.cluster = cluster
        self.said = said
        """Output of `up`."""
        self.errors: list[str] = []
        """Texts of all errors that clients got."""
        assert cluster.security is not None
        self.security: Security = cluster.security

    def node(self, name: str) -> Node:
        return self.cluster.state.node(name)

    def client(
        self, url: str = "", *, token: str | None = None, authority: Path | None = None, timeout_s: int = 30
    ) -> pulsar.Client:
        """Open an official client, with the token of the client's role or another one; "": it has none."""
        text = self.security.token(CLIENT).read_text() if token is None else token
        log = self.cluster.folder / "client.log"
        return pulsar.Client(
            url or self.cluster.service_url,
            authentication=pulsar.AuthenticationToken(text) if text else None,
            tls_trust_certs_file_path=str(authority or self.security.trust),
            tls_validate_hostname=True,
            operation_timeout_seconds=timeout_s,
            connection_timeout_ms=3000,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Debug, str(log)),
        )

    def refused(self, error: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], object]) -> None:
        """Check that a call raises, and keep the error's text."""
        with pytest.raises(error) as caught:
            call()
        self.errors.append(f"{caught.value!r} {caught.value}")

    def owner(self, topic: str) -> Node:
        web = next(
            url
            for url, node in zip(self.cluster.web_urls, self.cluster.nodes(Kind.BROKER), strict=True)
            if self.cluster.is_alive(node)
        )
        port = owner_port(web, topic, self.security)
        return next(node for node in self.cluster.nodes(Kind.BROKER) if node.port == port)

    def move(self, topic: str, broker: Node) -> None:
        """Unload the topic's bundle to that broker from its owner, and wait until it has arrived."""
        assert self.owner(topic) != broker, "a broker that has it already would not load it again"
        web, name = self.cluster.web_urls[0], topic.replace("://", "/")
        bundle = rest.request(self.security, "GET", f"{web}/lookup/v2/topic/{name}/bundle").raise_for_status().text
        path = f"namespaces/public/default/{bundle}/unload?destinationBroker={HOST}:{broker.ports[1]}"
        rest.request(self.security, "PUT", f"{web}{ADMIN_V2}/{path}").raise_for_status()
        wait_until(lambda: self.owner(topic) == broker, f"{topic} has moved to {broker.name}", 30)

    def shell(self, *words: str) -> str:
        command = [sys.executable, "-m", "quire.cli.main", "shell", "-conf", str(self.cluster.shell_conf), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def operation(self, name: str, *words: str) -> str:
        command = [sys.executable, "-m", "quire.cli.operations", name, "--conf", str(self.cluster.shell_conf), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def context(self, name: str | None = OPERATOR) -> ssl.SSLContext:
        """Return TLS of a client with the certificate of a process; None: without one."""
        made = ssl.create_default_context(cafile=self.security.trust)
        if name is not None:
            made.load_cert_chain(self.security.certificate(name), self.security.key(name))
        return made

    def ports(self) -> dict[int, Node]:
        """Return the ports on which the processes of the cluster listen."""
        found: dict[int, Node] = {}
        for node in self.cluster.nodes():
            pids = self.cluster.pids_of(node)
            found |= dict.fromkeys(listening_ports(pids), node)
        return found


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure") / "cluster"
    words = ["--folder", str(folder), "up", "--secure", "--brokers", "2", "--log-level", "debug"]
    settings = {
        "broker.tlsCertRefreshCheckDurationSec": SOON_S,
        "broker.bookkeeperTlsCertFilesRefreshDurationSeconds": SOON_S,
        "bookie.tlsCertFilesRefreshDurationSeconds": SOON_S,
        "recovery.tlsCertFilesRefreshDurationSeconds": SOON_S,
        "recovery.rwRereplicateBackoffMs": 1000,
        "recovery.lockReleaseOfFailedLedgerGracePeriod": 3000,
        **{f"{kind}.quireZooKeeperAuth": f"digest:test:{DIGEST}" for kind in ("bookie", "broker", "recovery")},
    }
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    capture = pytest.MonkeyPatch()
    lines: list[str] = []
    capture.setattr("rich.console.Console.print", lambda self, text, **_: lines.append(str(text)))
    try:
        code = main(words)
    finally:
        capture.undo()
    try:
        assert code == 0
        yield Secure(LocalCluster.find(folder), "\n".join(lines))
    finally:
        if (folder / "cluster.json").exists():
            LocalCluster.find(folder).abandon()


def send(client: pulsar.Client, topic: str, values: range) -> None:
    producer = client.create_producer(topic, send_timeout_millis=30_000)
    for number in values:
        producer.send(b"%d" % number)
    producer.close()


def received(consumer: pulsar.Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = consumer.receive(30_000)
        consumer.acknowledge(message)
        if int(message.data()) not in found:  # an acknowledgement that a killed broker had not stored yet
            found.append(int(message.data()))
    return found


def test_it_prints_what_a_client_needs_and_only_the_owner_may_read_secrets(secure: Secure) -> None:
    security = secure.security
    for expected in (secure.cluster.service_url, str(security.trust), str(security.token(CLIENT))):
        assert expected in secure.said
    assert secure.cluster.service_url.startswith("pulsar+ssl://")
    assert security.folder.stat().st_mode & 0o077 == 0
    readable = {path.name for path in security.folder.iterdir() if path.stat().st_mode & 0o077}
    assert all(name.endswith((".pem", ".public", ".conf")) and "store" not in name for name in readable)
    assert readable >= {"ca.pem", "bookie1.pem"}
    secrets = Secrets(security)
    for path in (*secure.cluster.folder.glob("*/*.conf"), *secure.cluster.folder.glob("*/zoo.cfg")):
        assert secrets.found_in(path.read_text()) == [], path


@pytest.mark.full
def test_clients_go_on_while_a_broker_and_a_bookie_are_killed(secure: Secure) -> None:
    cluster = secure.cluster
    assert main(["--folder", str(cluster.folder), "add-bookie"]) == 0  # without it, three would be too few after a kill
    cluster.refresh()
    with closing(secure.client()) as client:
        consumers = [client.subscribe(topic, "s") for topic in TOPICS]
        for topic in TOPICS:
            send(client, topic, range(10))
        owner = secure.owner(TOPICS[0])
        cluster.kill(owner)
        for topic in TOPICS:
            send(client, topic, range(10, 20))
        cluster.launch(owner)
        cluster.kill(secure.node("bookie3"))
        for topic in TOPICS:
            send(client, topic, range(20, 30))
        for consumer in consumers:
            assert sorted(received(consumer, 30)) == list(range(30))
        assert client.get_topic_partitions(TOPICS[0]) == [TOPICS[0]]
        cluster.wait_ready(owner)
        cluster.start(secure.node("bookie3"))
    for number, web in enumerate(cluster.web_urls):
        rest.request(secure.security, "GET", f"{web}{ADMIN_V2}/brokers/health").raise_for_status()
        path = f"{ADMIN_V2}/persistent/public/default/parts{number}/partitions"
        answer = rest.request(secure.security, "PUT", f"{web}{path}", json=4)
        assert answer.status_code == 204, answer.text  # (asks the other broker)


def test_auto_recovery_copies_to_another_bookie_and_the_scripts_of_operators_work(secure: Secure) -> None:
    cluster, lost = secure.cluster, secure.node("bookie1")
    cluster.kill(lost)
    wait_until(lambda: lost.address not in secure.shell("listbookies", "-rw"), "the bookie is not registered", 30)
    wait_until(lambda: cluster.verify_replicas()["good"], "auto recovery has copied what the bookie had", 60)
    secure.operation("recover-bookie", lost.address)
    cluster.start(lost)
    assert lost.address in secure.shell("listbookies", "-rw")


@pytest.mark.full
def test_a_disk_is_replaced(secure: Secure) -> None:
    cluster, node = secure.cluster, secure.node("bookie2")
    words = f"{sys.executable} -m tools.local_cluster --folder {cluster.folder}"
    own = node.folder(cluster.folder)
    root = Path(__file__).parents[2]
    secure.operation(
        "replace-disk",
        node.address,
        *("--stop", f"cd {root} && {words} stop {{id}}", "--start", f"cd {root} && {words} start {{id}}"),
        *("--wipe", f"rm -rf {own}/journal {own}/ledgers"),
    )
    cluster.refresh()
    assert json.loads(secure.operation("verify-replicas", "--json").splitlines()[-1])["good"]


def test_clients_without_the_right_token_are_refused(secure: Secure) -> None:
    stranger = Security(secure.cluster.folder.parent / "stranger")
    stranger.cluster.mkdir()
    stranger.make([])
    expired = secure.security.token_of(CLIENT, exp=int(time.time()) - 60)
    broker = secure.node("broker1")
    url = f"pulsar+ssl://{broker.address}"

    def refused_is(client: pulsar.Client, reason: str, topic: str = TOPICS[0]) -> None:
        begin = len(secure.cluster.log(broker))
        with closing(client):
            secure.refused(pulsar.PulsarException, lambda: client.create_producer(topic))
        wait_until(lambda: reason in secure.cluster.log(broker)[begin:], f"the broker says {reason}", 20)

    # The client tries again until its time is over: the broker's log has the reason.
    for token, reason in (
        ("", "there is no provider of the method"),
        (stranger.token(CLIENT).read_text(), "its signature is wrong"),
        ("no.token.atall", "the token is malformed"),
        (expired, "the token has expired"),
    ):
        refused_is(secure.client(url, token=token, timeout_s=1), reason)
    refused_is(secure.client(url), "", "persistent://pulsar/system/not-permitted")
    refused_is(secure.client(url, authority=stranger.trust, timeout_s=1), "tls handshake failed")
    refused_is(secure.client(f"pulsar://{broker.address}", timeout_s=1), "tls handshake failed")
    web = f"{secure.cluster.web_urls[0]}{ADMIN_V2}/tenants"
    client = rest.http(secure.security.trust)
    for header, status in (
        ({}, 401),
        ({"Authorization": f"Bearer {expired}"}, 401),
        ({"Authorization": f"Bearer {secure.security.token(CLIENT).read_text()}"}, 401),
        ({"Authorization": f"Bearer {secure.security.token(ADMIN).read_text()}"}, 200),
    ):
        answer = client.get(web, headers=header)
        assert answer.status_code == status, answer.text
        secure.errors.append(answer.text)
    metrics = client.get(f"{secure.cluster.web_urls[0]}/metrics")
    assert metrics.status_code == 401


async def write_entry(secure: Secure, tls: TlsOptions | None, credentials: BookieCredentials | None) -> None:
    """Write an entry to a new ledger on one bookie. LedgerError."""
    secured = ZooKeeperConfig(servers=((HOST, 1),), tls=secure.security.zookeeper_tls, secure=True)
    uri = secure.cluster.metadata_uri
    with trio.fail_after(30):
        async with open_client(real_world(), uri, zookeeper=secured, tls=tls, credentials=credentials) as ledgers:
            digest = DigestType.CRC32C
            writer = await ledgers.create(ensemble_size=1, write_quorum=1, ack_quorum=1, digest_type=digest)
            writer.append([b"x"])
            await writer.wait_confirmed(0)


def test_bookies_refuse_clients_without_certificate_password_or_tls(secure: Secure) -> None:
    security = secure.security
    known = read_credentials(security.password.read_bytes())
    right = TlsOptions(
        trust_file=str(security.trust),
        certificate_file=str(security.certificate(OPERATOR)),
        key_file=str(security.key(OPERATOR)),
    )
    trio.run(write_entry, secure, right, known)
    wrong = BookieCredentials(known.user, "not-the-password")
    for tls, credentials in (
        (right, None),
        (right, wrong),
        (replace(right, certificate_file="", key_file=""), known),
        (None, known),
    ):
        secure.refused(LedgerError, partial(trio.run, write_entry, secure, tls, credentials))


def test_zookeeper_refuses_clients_without_certificate_and_writes_by_others(secure: Secure) -> None:
    addresses = secure.cluster.state.addresses
    config = ZooKeeperConfig(
        servers=((HOST, addresses.zookeepers[0].port),), connect_timeout_s=1.0, tls=secure.security.zookeeper_tls
    )
    assert config.tls is not None
    trio.run(read_root, config)
    without = replace(config.tls, certificate_file=None, key_file=None)
    for tls in (None, without):
        secure.refused(MetadataUnavailableError, partial(trio.run, read_root, replace(config, tls=tls)))
    trio.run(write_as_another, secure, config)


async def read_root(config: ZooKeeperConfig) -> None:
    """Read the root of ledgers. MetadataUnavailableError."""
    store = await open_store(real_world(), config)
    try:
        assert await store.get("/ledgers") is not None
    finally:
        await store.aclose()


async def write_as_another(secure: Secure, config: ZooKeeperConfig) -> None:
    """Write nodes of the cluster as another subject, which must be refused, and as the cluster's own."""
    async with metadata_store(secure.cluster.state.addresses, secure.security) as ours:
        stranger = Stranger(secure.security)
        store = await open_store(real_world(), replace(config, tls=stranger.tls(config)))
        try:
            for path in ("/admin/policies/public", f"/ledgers/cookies/{secure.node('bookie1').address}"):
                node = await store.get(path)
                assert node is not None
                with pytest.raises(NotAllowedError):
                    await store.put(path, node.value, node.version)
                # The identity of the processes may write what another process created.
                await ours.put(path, node.value, node.version)
        finally:
            await store.aclose()


class Stranger:
    """Another subject of the same authority."""

    def __init__(self, security: Security) -> None:
        authority = Authority.read(Issued(security.trust.read_bytes(), security.key("ca").read_bytes()))
        made = authority.issue("stranger", datetime.datetime.now(datetime.UTC))
        self.certificate, self.key = security.cluster / "stranger.pem", security.cluster / "stranger.key"
        self.certificate.write_bytes(made.certificate)
        self.key.write_bytes(made.key)

    def tls(self, config: ZooKeeperConfig) -> Any:
        assert config.tls is not None
        return replace(config.tls, certificate_file=str(self.certificate), key_file=str(self.key))


def test_nothing_listens_without_tls(secure: Secure) -> None:
    ports = secure.ports()
    expected = {(node.name, port) for node in secure.cluster.nodes() for port in node.ports[: _PORTS[node.kind]]}
    assert {(node.name, port) for port, node in ports.items()} == expected
    for port, node in ports.items():
        assert answers_in_plain(port) == {}, node.name
        certificate = certificate_of(port, secure.context(), start_tls=node.kind is Kind.BOOKIE)
        assert certificate == _der(secure.security, node.name), f"{node.name} presents its own certificate"


_PORTS = {Kind.ZOOKEEPER: 1, Kind.BOOKIE: 1, Kind.BROKER: 2, Kind.RECOVERY: 0}
"""Ports of each that listen, in a cluster with a single ZooKeeper."""


def _der(security: Security, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(security.certificate(name).read_text())


def test_certificates_are_replaced_while_clients_live(secure: Secure) -> None:
    cluster, security = secure.cluster, secure.security
    before = {name: pid.pid for name, pid in cluster.state.pids.items()}
    with closing(secure.client()) as client:
        consumer = client.subscribe(TOPICS[1], "replaced")
        producer = client.create_producer(TOPICS[1])
        producer.send(b"0")
        for node in cluster.nodes():
            security.issue(node.name)
        security.issue(OPERATOR)
        issued_at = time.monotonic()

        def presented(port: int, node: Node) -> bool:
            found = certificate_of(port, secure.context(), start_tls=node.kind is Kind.BOOKIE)
            return found == _der(security, node.name)

        for port, node in secure.ports().items():
            wait_until(partial(presented, port, node), f"{node.name} presents the new one", 20)
        producer.send(b"1")
        assert received(consumer, 2) == [0, 1]
        # A broker's new connections show bookies and ZooKeeper its new certificate, here after their restarts.
        wait_until(
            lambda: time.monotonic() > issued_at + SOON_S, "a new connection makes a process look at its files", 5
        )
        for node in (*cluster.nodes(Kind.BOOKIE)[COPIES - 1 :], secure.node("zk1")):
            cluster.kill(node)
            cluster.start(node)
        send(client, f"{TOPICS[1]}-new", range(3))
        producer.send(b"2")
        assert received(consumer, 1) == [2]
        # A broker keeps its connections, and without topics it would make none. Each one creates a ledger, of whose
        # bookies at least one was restarted.
        owner = secure.owner(TOPICS[3])
        for broker in sorted(cluster.nodes(Kind.BROKER), key=lambda each: each == owner):
            secure.move(TOPICS[3], broker)
            send(client, TOPICS[3], range(1))
    for node in cluster.nodes(Kind.BROKER, Kind.RECOVERY):
        assert cluster.state.pids[node.name].pid == before[node.name]
        changed = 'tls files changed, used for new connections" server='
        servers = ("ZooKeeper", "bookies") if node.kind is Kind.BROKER else ("ZooKeeper",)
        for server in servers:  # after the receipt of two bookies, the connection to the third may still begin
            wait_until(partial(has_said, cluster, node, f"{changed}{server}"), f"{node.name}: {server}", 30)


def has_said(cluster: LocalCluster, node: Node, text: str) -> bool:
    return text in cluster.log(node)


def test_expired_certificates_are_refused_and_the_next_ones_are_used(secure: Secure) -> None:
    security = secure.security
    broker = secure.node("broker1")
    url = f"pulsar+ssl://{broker.address}"
    security.issue(broker.name, expired=True)

    def verify() -> bool:
        try:
            certificate_of(broker.port, secure.context())
        except ssl.SSLCertVerificationError as error:
            return "expired" in str(error)
        return False

    wait_until(verify, "the broker presents the expired certificate", 20)
    with closing(secure.client(url, timeout_s=1)) as client:
        secure.refused(pulsar.PulsarException, lambda: client.create_producer(TOPICS[2]))
    security.issue(broker.name)
    wait_until(lambda: not verify(), "the broker presents the next one", 20)
    with closing(secure.client()) as client:
        send(client, TOPICS[2], range(1))
    # The certificate of a client: bookies and ZooKeeper refuse an expired one.
    security.issue(OPERATOR, expired=True)
    for name in ("zk1", "bookie1"):
        node = secure.node(name)
        secure.refused((ssl.SSLError, ConnectionError), partial(exchange, node, secure.context()))
    security.issue(OPERATOR)
    exchange(secure.node("zk1"), secure.context())


def exchange(node: Node, context: ssl.SSLContext) -> None:
    """Handshake, and wait for the server's verdict about our certificate, which comes after it."""
    with socket.create_connection((HOST, node.port), timeout=5) as raw:
        if node.kind is Kind.BOOKIE:
            raw.sendall(v3.start_tls_request(1))
            raw.recv(4096)
        with context.wrap_socket(raw, server_hostname=HOST) as stream:
            stream.sendall(b"srvr")
            if not stream.recv(1):
                raise ConnectionError("the server closed the connection")


# --- secrets


NAMES = {
    "{tenant}": "public",
    "{namespace}": "default",
    "{topic}": "secure0",
    "{domain}": "persistent",
    "{subscription}": "s",
    "{cluster}": "local",
    "{role}": CLIENT,
}


def answers(secure: Secure) -> Iterator[tuple[str, str]]:
    """Yield what every GET of the web port answers to an admin, and to requests without and with wrong credentials."""
    # Streams of events do not end; they send what the calls beside them answer.
    patterns = [pattern for method, pattern in ROUTES if method == "GET" and "events" not in pattern]
    assert len(patterns) > 100
    web = secure.cluster.web_urls[0]
    wrong = {"Authorization": f"Bearer {secure.security.token(CLIENT).read_text().strip()}x"}
    for pattern in ("/metrics", "/status.html", *patterns):
        path = pattern
        for name, value in NAMES.items():
            path = path.replace(name, value)
        path = path.replace("{", "").replace("}", "")
        answer = rest.request(secure.security, "GET", f"{web}{path}")
        yield path, f"{answer.headers} {answer.text}"
        if pattern.endswith(("topic}/stats", "tenants", "metrics")):
            yield f"{path}, wrong token", str(rest.http(secure.security.trust).get(f"{web}{path}", headers=wrong).text)


def test_no_secret_is_in_a_log_an_error_a_metric_an_answer_a_command_line_or_a_repr(secure: Secure) -> None:
    cluster, security = secure.cluster, secure.security
    secrets = Secrets(security, digest=DIGEST)
    assert len(secrets) > 20
    shown: dict[str, list[str]] = {}

    def look(where: str, text: str) -> None:
        if found := secrets.found_in(text):
            shown[where] = found

    look("output of up", secure.said)
    assert secure.errors
    for text in secure.errors:
        look("an error", text)
    count = 0
    for path, text in answers(secure):
        look(path, text)
        count += 1
    assert count > 100
    look("output of the shell", secure.shell("bookieinfo"))
    for text in reprs(secure):
        look(f"repr {text[:40]}", text)
    # The logs come last, with what they have about all of this.
    for node in cluster.nodes():
        look(f"log of {node.name}", cluster.log(node))
        for pid in cluster.pids_of(node):
            command = Path(f"/proc/{pid}/cmdline").read_text()
            assert "debug" in command, f"{node.name} logs everything"
            look(f"command line of {node.name}", command)
            look(f"environment of {node.name}", Path(f"/proc/{pid}/environ").read_text())
    look("log of the official clients", (cluster.folder / "client.log").read_text(errors="replace"))
    assert shown == {}


def reprs(secure: Secure) -> Iterator[str]:
    """Yield the repr of every configuration, and of what is made of it."""
    cluster = secure.cluster
    for node in cluster.nodes(Kind.BROKER):
        conf = BROKER.load(node.conf(cluster.folder))
        assert conf.metadata.auth.endswith(DIGEST)
        yield repr(conf)
        yield repr(conf.metadata.stores())
        yield repr((conf.tls.options(), conf.client_tls.options(), conf.ledger_tls.options()))
        yield repr(authentication_of(conf.authentication, conf.authorization))
        yield repr(credentials_of(conf.authentication))
    for node in cluster.nodes(Kind.BOOKIE):
        bookie = BOOKIE.load(node.conf(cluster.folder))
        yield repr(bookie)
        yield repr((bookie.metadata.zookeeper, bookie.metadata.zookeeper_of_server, bookie.tls.server()))
    for node in cluster.nodes(Kind.RECOVERY):
        recovery = AUTORECOVERY.load(node.conf(cluster.folder))
        yield repr((recovery, recovery.metadata.zookeeper, recovery.tls.client()))
    shell = SHELL.load(cluster.shell_conf)
    yield repr((shell, shell.zookeeper))
    yield repr(read_credentials(secure.security.password.read_bytes()))
    yield repr(secure.security)
