"""TLS of a standalone server, with the official client, with httpx, and with quire.client."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pulsar
import pytest
import trio

from quire.client.client import open_client
from quire.client.errors import ClientError
from quire.client.message_id import MessageId
from quire.client.options import ClientOptions
from quire.client.packing import pack
from quire.spark.admin import Admin
from quire.spark.errors import SparkSourceError
from quire.wire.pulsar.metadata import metadata_span
from quire.world.real import real_world
from quire.world.tls_options import TlsOptions
from tests.support.certificates import Authority, Pair
from tests.support.process import wait_until
from tests.support.server import StandaloneProcess, free_port, standalone

pytestmark = pytest.mark.real_clock


class Secure:
    """A server with all four ports, whose files of TLS a test may replace."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.pair = self.authority.issue("localhost")
        self.port, self.web_port = free_port(), free_port()
        self.settings: dict[str, object] = {
            "brokerServicePortTls": self.port,
            "webServicePortTls": self.web_port,
            "tlsCertificateFilePath": self.pair.certificate,
            "tlsKeyFilePath": self.pair.key,
            "tlsTrustCertsFilePath": self.authority.trust,
            "tlsCertRefreshCheckDurationSec": 0,
            "advertisedAddress": "localhost",
            **settings,
        }
        self.server: StandaloneProcess

    @property
    def url(self) -> str:
        return f"pulsar+ssl://localhost:{self.port}"

    @property
    def web(self) -> str:
        return f"https://localhost:{self.web_port}"

    def client(self, trust: Path | None = None, *, certificate: Pair | None = None, **more: Any) -> pulsar.Client:
        """Return an official client, which validates host names."""
        if certificate is not None:
            more["authentication"] = pulsar.AuthenticationTLS(str(certificate.certificate), str(certificate.key))
        given = {"tls_validate_hostname": True, "tls_allow_insecure_connection": False, **more}
        return pulsar.Client(
            given.pop("url", self.url),
            tls_trust_certs_file_path=str(trust or self.authority.trust),
            operation_timeout_seconds=5,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
            **given,
        )

    def get(self, path: str, **more: Any) -> httpx2.Response:
        context = ssl.create_default_context(cafile=str(self.authority.trust))
        with httpx2.Client(verify=context, trust_env=False) as http:
            return http.get(f"{self.web}{path}", timeout=20, **more)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    made = Secure(tmp_path_factory.mktemp("tls"))
    with standalone(made.folder, made.settings) as made.server:
        yield made


def exchange(client: pulsar.Client, topic: str, count: int = 20, size: int = 1) -> None:
    """Send messages and receive them."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(count):
        producer.send_async(b"%d," % number * size, None)
    producer.flush()
    for number in range(count):
        message = consumer.receive(10_000)
        assert message.data() == b"%d," % number * size
        consumer.acknowledge(message)
    producer.close()
    consumer.close()


def test_messages_are_exchanged_over_tls_and_lookups_answer_the_url_with_tls(secure: Secure, topic: str) -> None:
    client = secure.client()
    exchange(client, topic)
    exchange(client, topic, 30, 50_000)
    client.close()
    found = secure.get(f"/lookup/v2/topic/{topic.replace('://', '/')}").json()
    assert found == {
        "brokerUrl": f"pulsar://localhost:{secure.server.port}",
        "brokerUrlTls": secure.url,
        "httpUrl": f"http://localhost:{secure.server.web_port}",
        "httpUrlTls": secure.web,
        "nativeUrl": f"pulsar://localhost:{secure.server.port}",
        "brokerUrlSsl": secure.url,
    }


def test_the_official_client_looks_up_topics_over_https(secure: Secure, topic: str) -> None:
    client = secure.client(url=secure.web)
    exchange(client, topic)
    client.close()


def test_messages_of_one_port_are_received_at_the_other(secure: Secure, topic: str, tmp_path: Path) -> None:
    over_tls, without = secure.client(), pulsar.Client(secure.server.url)
    consumer = over_tls.subscribe(topic, "s")
    without.create_producer(topic).send(b"in the clear")
    assert consumer.receive(10_000).data() == b"in the clear"
    over_tls.close()
    without.close()


def refused(client: pulsar.Client, topic: str) -> bool:
    try:
        client.create_producer(topic)
    except pulsar.PulsarException:
        return True
    finally:
        client.close()
    return False


def test_a_server_that_a_client_does_not_trust_is_refused_by_it(secure: Secure, topic: str, tmp_path: Path) -> None:
    assert refused(secure.client(Authority(tmp_path, "other").trust), topic)


def test_a_server_of_another_name_is_refused_by_a_client_that_validates_names(secure: Secure, topic: str) -> None:
    by_address = f"pulsar+ssl://127.0.0.1:{secure.port}"
    assert refused(secure.client(url=by_address), topic)
    assert not refused(secure.client(url=by_address, tls_validate_hostname=False), topic)


def test_health_metrics_and_admin_are_served_over_https(secure: Secure) -> None:
    assert secure.get("/status.html").text == "OK"
    assert secure.get("/admin/v2/brokers/health").text == "ok"
    assert "quire_" in secure.get("/metrics").text
    assert "public" in secure.get("/admin/v2/tenants").json()
    context = ssl.create_default_context(cafile=str(secure.authority.trust))
    with httpx2.Client(verify=context, trust_env=False) as http:
        body = b" " * 60_000 + json.dumps({"allowedClusters": ["standalone"]}).encode()
        headers = {"Content-Type": "application/json"}
        posted = http.put(f"{secure.web}/admin/v2/tenants/large", content=body, headers=headers, timeout=20)
    assert posted.status_code == 204, posted.text


def test_a_port_with_tls_serves_nothing_else(secure: Secure) -> None:
    for port in (secure.port, secure.web_port):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
            sock.sendall(b"GET /status.html HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = b""
            while received := sock.recv(1000):
                answer += received
        assert b"HTTP" not in answer
        assert len(answer) < 20, "an alert at most"


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_both_versions_are_spoken_and_older_ones_are_not(secure: Secure, version: str) -> None:
    def connect(*options: str) -> str:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{secure.web_port}", "-alpn", "h2,http/1.1", *options]
        ran = subprocess.run(command, input="", capture_output=True, text=True, check=False, timeout=30)
        return ran.stdout + ran.stderr

    assert "ALPN protocol: http/1.1" in connect(version)
    assert "Cipher is (NONE)" in connect("-tls1_1", "-cipher", "ALL:@SECLEVEL=0")


def test_certificates_are_replaced_without_a_restart_and_live_connections_go_on(tmp_path: Path, topic: str) -> None:
    made = Secure(tmp_path)

    def served() -> bytes:
        with socket.create_connection(("127.0.0.1", made.port), timeout=10) as raw:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(raw) as sock:
                return sock.getpeercert(binary_form=True) or b""

    with standalone(made.folder, made.settings) as made.server:
        live = made.client()
        consumer = live.subscribe(topic, "s")
        producer = live.create_producer(topic)
        first = served()
        old_trust = made.authority.trust.read_bytes()
        other = Authority(tmp_path, "other")
        other.issue("localhost")  # the files of the server
        made.authority.trust.write_bytes(other.trust.read_bytes())
        assert served() != first
        producer.send(b"goes on")
        assert consumer.receive(10_000).data() == b"goes on"
        trusting = made.client()
        exchange(trusting, f"{topic}-new")
        trusting.close()
        before = tmp_path / "before.pem"
        before.write_bytes(old_trust)
        assert refused(made.client(before), topic)
        second = served()
        made.pair.key.write_text("broken")
        assert served() == second
        wait_until(lambda: "tls files cannot be used" in made.server.log(), "the warning")
        live.close()


def test_clients_need_a_certificate_where_it_is_required(tmp_path: Path, topic: str) -> None:
    made = Secure(tmp_path, tlsRequireTrustedClientCertOnConnect="true")
    stranger = Authority(tmp_path, "stranger").issue("someone", file="stranger")
    known = made.authority.issue("someone", file="known")
    old = made.authority.issue("someone", file="old", expired=True)
    with standalone(made.folder, made.settings) as made.server:
        client = made.client(certificate=known)
        exchange(client, topic)
        client.close()
        for certificate in (None, stranger, old):
            assert refused(made.client(certificate=certificate), topic)
        context = ssl.create_default_context(cafile=str(made.authority.trust))
        with httpx2.Client(verify=context, trust_env=False) as http, pytest.raises(httpx2.HTTPError):
            http.get(f"{made.web}/status.html", timeout=20)
        context.load_cert_chain(known.certificate, known.key)
        with httpx2.Client(verify=context, trust_env=False) as http:
            assert http.get(f"{made.web}/status.html", timeout=20).text == "OK"


# --- quire.client


async def test_quire_client_reads_and_writes_over_tls(secure: Secure, topic: str) -> None:
    options = ClientOptions(tls=TlsOptions(trust_file=str(secure.authority.trust)))
    async with open_client(real_world(), secure.url, options) as client:
        producer = await client.producer(topic)
        await producer.send(pack([b"one", b"two"], [None, None], None, None, batch=False))
        await producer.flush()
        reader = await client.reader(topic, MessageId.EARLIEST)
        found: list[bytes] = []
        with trio.fail_after(20):
            while len(found) < 2:
                found += [bytes(entry[metadata_span(entry)[1] :]) for entry in (await reader.receive()).entries]
    assert found == [b"one", b"two"]


async def test_quire_client_refuses_what_it_does_not_trust(secure: Secure, topic: str, tmp_path: Path) -> None:
    other = TlsOptions(trust_file=str(Authority(tmp_path, "other").trust))
    options = ClientOptions(tls=other, operation_timeout_s=1)
    async with open_client(real_world(), secure.url, options) as client:
        with pytest.raises(ClientError, match="certificate verify failed"):
            await client.partitions(topic)
    options = ClientOptions(tls=TlsOptions(trust_file=str(secure.authority.trust)), operation_timeout_s=1)
    async with open_client(real_world(), f"pulsar+ssl://127.0.0.1:{secure.port}", options) as client:
        with pytest.raises(ClientError, match="IP address mismatch"):
            await client.partitions(topic)


def test_the_planner_of_spark_asks_over_https(secure: Secure, topic: str, tmp_path: Path) -> None:
    client = secure.client()
    client.create_producer(topic).send(b"x")
    client.close()
    admin = Admin(secure.web, timeout_s=5, tls=TlsOptions(trust_file=str(secure.authority.trust)))
    assert admin.internal_stats(topic)["state"] == "LedgerOpened"
    admin.close()
    stranger = TlsOptions(trust_file=str(Authority(tmp_path, "other").trust))
    with pytest.raises(SparkSourceError, match="certificate verify failed"):
        Admin(secure.web, timeout_s=1, tls=stranger).internal_stats(topic)
    with pytest.raises(SparkSourceError, match=r"ca\.pem: cannot be read"):
        Admin(secure.web, timeout_s=1, tls=TlsOptions(trust_file="/nowhere/ca.pem")).internal_stats(topic)
