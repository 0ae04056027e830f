"""OAuth 2.0 by the official client: it gets tokens of an issuer for its own credentials, and the server takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support.credentials import OPEN_ID, SECRET, TOKEN, token
from tests.support.issuer import CLIENT, Issuer, issuing
from tests.support.server import StandaloneProcess, standalone
from tests.support.waiting import wait_until

LASTS_S = 3
TOPIC = "persistent://public/default/reports"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with issuing(tmp_path_factory.mktemp("issuer"), lasts_s=LASTS_S) as made:
        yield made


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("server")
    (folder / "secret.key").write_bytes(SECRET)
    (folder / "own").write_text(token("broker"))
    conf: dict[str, object] = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{TOKEN},{OPEN_ID}",
        "tokenSecretKey": f"file://{folder}/secret.key",
        "authorizationEnabled": "true",
        "superUserRoles": f"broker,{CLIENT}",
        "authenticationRefreshCheckSeconds": 1,
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"file://{folder}/own",
        **issuer.conf(),
    }
    with standalone(folder, conf) as running:
        yield running


def client_of(server: StandaloneProcess, parameters: dict[str, str]) -> pulsar.Client:
    return pulsar.Client(
        server.url,
        authentication=pulsar.AuthenticationOauth2(json.dumps(parameters)),
        operation_timeout_seconds=5,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )


def test_a_client_with_its_own_credentials_is_served_past_the_end_of_its_token(
    server: StandaloneProcess, issuer: Issuer
) -> None:
    client = client_of(server, issuer.parameters())
    try:
        consumer, producer = client.subscribe(TOPIC, "s"), client.create_producer(TOPIC)
        producer.send(b"report")
        assert consumer.receive(10_000).data() == b"report"
        closed = server.metric("pulsar_connection_closed_total_count")
        before = len(issuer.asked)
        wait_until(lambda: producer.send(b"more") is not None and len(issuer.asked) >= before + 2, within=30)
        assert server.metric("pulsar_connection_closed_total_count") == closed
    finally:
        client.close()


@pytest.mark.parametrize("wrong", [{"audience": "urn:other"}, {"scope": "x", "audience": ""}])
def test_a_token_for_another_audience_is_refused(
    server: StandaloneProcess, issuer: Issuer, wrong: dict[str, str]
) -> None:
    client = client_of(server, {**issuer.parameters(), **wrong})
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(TOPIC)
    finally:
        client.close()


def test_a_client_that_the_issuer_does_not_know_is_refused(
    server: StandaloneProcess, issuer: Issuer, tmp_path: Path
) -> None:
    (tmp_path / "wrong.json").write_text(json.dumps({"client_id": CLIENT, "client_secret": "wrong"}))
    client = client_of(server, {**issuer.parameters(), "private_key": f"file://{tmp_path}/wrong.json"})
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(TOPIC)
    finally:
        client.close()


def test_credentials_of_an_issuer_for_the_broker_itself_are_refused_by_name(issuer: Issuer, tmp_path: Path) -> None:
    plugin = "org.apache.pulsar.client.impl.auth.oauth2.AuthenticationOAuth2"
    (tmp_path / "secret.key").write_bytes(SECRET)
    conf: dict[str, object] = {
        "authenticationEnabled": "true",
        "authenticationProviders": TOKEN,
        "tokenSecretKey": f"file://{tmp_path}/secret.key",
        "brokerClientAuthenticationPlugin": plugin,
        "brokerClientAuthenticationParameters": json.dumps(issuer.parameters()),
    }
    code, text = StandaloneProcess(tmp_path, conf).refused()
    assert code == 2
    assert "brokerClientAuthenticationPlugin" in text
    assert f"there is no {plugin}" in text
