"""Answers about the last message and about clients, as PulsarAdmin reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.support import web
from tests.support.credentials import SECRET, TOKEN, token
from tests.support.server import StandaloneProcess, standalone

ROOT = "/admin/v2/persistent/public/default"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("secured")
    (folder / "secret.key").write_bytes(SECRET)
    (folder / "own").write_text(token("broker"))
    conf: dict[str, object] = {
        "authenticationEnabled": "true",
        "authenticationProviders": TOKEN,
        "tokenSecretKey": f"file://{folder}/secret.key",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"file://{folder}/own",
    }
    with standalone(folder, conf) as running:
        yield running


@pytest.fixture
def clients(secured: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(
        secured.url,
        authentication=pulsar.AuthenticationToken(token("reporter")),
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )
    yield made
    made.close()


def get(server: StandaloneProcess, path: str) -> Any:
    found = web.get(f"{server.web}{path}", headers={"Authorization": f"Bearer {token('admin')}"}, timeout=20)
    assert found.status_code == 200, found.text
    return found.json()


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_consumers_show_the_role_and_the_properties_of_their_client(
    secured: StandaloneProcess, clients: pulsar.Client, domain: str
) -> None:
    clients.subscribe(f"{domain}://public/default/shown", "s", properties={"team": "blue"})
    found = get(secured, f"/admin/v2/{domain}/public/default/shown/stats")
    [consumer] = found["subscriptions"]["s"]["consumers"]
    assert (consumer["appId"], consumer["metadata"]) == ("reporter", {"team": "blue"})
    assert found["ownerBroker"] == secured.web.removeprefix("http://")


def test_the_last_message_of_a_batch_has_its_index(secured: StandaloneProcess, clients: pulsar.Client) -> None:
    batching: dict[str, Any] = {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000}
    producer = clients.create_producer("public/default/batch", **batching)
    for number in range(3):
        producer.send_async(str(number).encode(), lambda result, sent: None)
    producer.flush()
    last = get(secured, f"{ROOT}/batch/lastMessageId")
    assert (last["entryId"], last["batchIndex"]) == (0, 2)
