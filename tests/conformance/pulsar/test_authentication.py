"""Authentication as the official client uses it, against a server whose configuration asks for it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support import web
from tests.support.credentials import BASIC, PASSWORD, SECRET, TOKEN, USERS, token
from tests.support.pulsar_frames import C
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess, standalone
from tests.support.waiting import wait_until

REFRESH_S = 1
RECEIVE_MS = 10_000
SECRETS = (PASSWORD, token(), SECRET.hex(), repr(SECRET)[2:20])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("secured")
    (folder / "secret.key").write_bytes(SECRET)
    (folder / "users").write_text(USERS)
    (folder / "own").write_text(token("broker"))
    conf: dict[str, object] = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{TOKEN},{BASIC}",
        "tokenSecretKey": f"file://{folder}/secret.key",
        "basicAuthConf": folder / "users",
        "authenticationRefreshCheckSeconds": REFRESH_S,
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"file://{folder}/own",
        "transactionCoordinatorEnabled": "true",
    }
    with standalone(folder, conf) as running:
        yield running
        for secret in SECRETS:
            assert secret not in running.log()


def client_of(server: StandaloneProcess, authentication: Any, url: str = "") -> pulsar.Client:
    return pulsar.Client(
        url or server.url,
        authentication=authentication,
        operation_timeout_seconds=5,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )


def works(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"hello")
    message = consumer.receive(RECEIVE_MS)
    assert message.data() == b"hello"
    consumer.acknowledge(message)
    producer.close()
    consumer.close()


@pytest.mark.parametrize("binary", [True, False], ids=["pulsar", "http"])
@pytest.mark.parametrize(
    "authentication",
    [
        pytest.param(pulsar.AuthenticationToken(token()), id="token"),
        pytest.param(pulsar.AuthenticationToken(lambda: token()), id="supplier"),
        pytest.param(pulsar.AuthenticationBasic("admin", PASSWORD), id="basic"),
        pytest.param(pulsar.AuthenticationBasic("old", "myPassword"), id="crypt"),
    ],
)
def test_a_client_with_credentials_is_served(secured: StandaloneProcess, authentication: Any, binary: bool) -> None:
    client = client_of(secured, authentication, "" if binary else secured.web)
    try:
        works(client, f"persistent://public/default/auth-{time.time_ns()}")
    finally:
        client.close()


@pytest.mark.parametrize(
    "authentication",
    [
        pytest.param(None, id="none"),
        pytest.param(pulsar.AuthenticationToken("nonsense"), id="nonsense"),
        pytest.param(pulsar.AuthenticationToken(token(exp=1)), id="expired"),
        pytest.param(pulsar.AuthenticationToken(token(key=bytes(64))), id="wrong-key"),
        pytest.param(pulsar.AuthenticationBasic("admin", "wrong"), id="wrong-password"),
        pytest.param(pulsar.AuthenticationBasic("admin", PASSWORD, "unknown"), id="wrong-method"),
    ],
)
def test_a_client_without_right_credentials_is_not(secured: StandaloneProcess, authentication: Any) -> None:
    client = client_of(secured, authentication)
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("persistent://public/default/refused")
    finally:
        client.close()
    topics = web.get(f"{secured.web}/admin/v2/persistent/public/default", headers=bearer()).json()
    assert not any("refused" in topic for topic in topics)


def bearer(role: str = "alice") -> dict[str, str]:
    return {"Authorization": f"Bearer {token(role)}"}


def test_a_long_connection_refreshes_its_token(secured: StandaloneProcess) -> None:
    asked: list[float] = []

    def fresh() -> str:
        asked.append(time.monotonic())
        return token("refreshing", exp=int(time.time()) + 2)

    client = client_of(secured, pulsar.AuthenticationToken(fresh))
    try:
        producer = client.create_producer("persistent://public/default/refreshed")
        before = secured.metric("pulsar_connection_closed_total_count")
        # A token lasts two seconds: after three refreshes the first connection is still the one.
        wait_until(lambda: producer.send(b"x") is not None and len(asked) >= 5, within=20)
        assert secured.metric("pulsar_connection_closed_total_count") == before
    finally:
        client.close()


def test_a_connection_that_cannot_refresh_is_closed_at_its_expiry(secured: StandaloneProcess) -> None:
    with RawClient(secured.port, connect=False) as client:
        connect = pb.CommandConnect(client_version="raw", protocol_version=20, auth_method_name="token")
        connect.auth_data = token(exp=int(time.time()) + 2).encode()
        client.send(C(type=C.CONNECT, connect=connect))
        client.expect(C.CONNECTED)
        begun = time.monotonic()
        assert client.closed_by_server(10)
        assert time.monotonic() - begun > 0.5


def test_the_web_port_needs_credentials(secured: StandaloneProcess) -> None:
    path = f"{secured.web}/admin/v2/namespaces/public"
    assert web.get(path).status_code == 401
    assert web.get(path, params={"token": token()}).status_code == 401
    assert web.get(path, headers=bearer()).json() == ["public/default"]
    assert web.get(f"{secured.web}/admin/v2/brokers/health").status_code == 401
    assert web.get(f"{secured.web}/admin/v2/brokers/health", headers=bearer()).text == "ok"
    assert web.get(f"{secured.web}/status.html").text == "OK"
    shown = web.get(f"{secured.web}/metrics").text
    assert "pulsar_authentication_failures_total" in shown
    for secret in SECRETS:
        assert secret not in shown


def test_what_is_wrong_with_the_configuration_ends_the_start(tmp_path: Path) -> None:
    server = StandaloneProcess(
        tmp_path,
        {
            "authenticationEnabled": "true",
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderSasl",
        },
    )
    code, said = server.refused()
    assert code == 2
    assert "authenticationProviders: there is no org.apache.pulsar.broker.authentication.AuthenticationProvider" in said


def test_tokens_of_the_command_line_work(secured: StandaloneProcess) -> None:
    """Checked here as a user would: with the key file of the server."""
    from typer.testing import CliRunner

    from quire.cli.main import app

    key = secured.data.parent / "secret.key"
    made = CliRunner().invoke(app, ["tokens", "create", "-s", "carol", "-sk", f"file://{key}"]).output.strip()
    client = client_of(secured, pulsar.AuthenticationToken(made))
    try:
        works(client, "persistent://public/default/of-the-command-line")
    finally:
        client.close()
    assert json.loads(CliRunner().invoke(app, ["tokens", "validate", made, "-sk", str(key)]).output)["sub"] == "carol"
