"""Sequence ids of batches on Apache Pulsar 4.2.4 and on Quire: the same frames to both, and equal answers of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.interop.apache_standalone import apache_standalone
from tests.support import web
from tests.support.pulsar_frames import U64_MAX, C, entry
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess, standalone

KEYS: dict[str, object] = {"brokerDeduplicationEnabled": "true", "brokerDeleteInactiveTopicsEnabled": "false"}
BATCHES = (
    (0, 10, None), (1, 10, None), (0, 10, None),  # a client that numbers batches, and one of them again
    (12, 10, None), (22, 10, None), (15, 3, None), (23, 1, None),  # one that numbers messages, and parts again
    (24, 3, 26), (24, 3, 26), (26, 2, None), (27, 5, 31), (30, 5, 34), (32, 1, None),  # one that names both ids
    (40, 5, 39), (41, 5, None),  # a highest id below the lowest counts for nothing
)  # fmt: skip
"""Lowest sequence id, messages, and highest sequence id of each send."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StandaloneProcess, StandaloneProcess]]:
    folder: Path = tmp_path_factory.mktemp("both")
    with apache_standalone(folder / "pulsar", KEYS) as theirs, standalone(folder / "quire", KEYS) as ours:
        yield theirs, ours


class Side:
    """A topic of one of the servers."""

    def __init__(self, server: StandaloneProcess, topic: str) -> None:
        self._server = server
        self._topic = topic

    def last_id(self) -> int:
        """Return the last sequence id that the broker gives to a new producer."""
        with RawClient(self._server.port) as client:
            return self._last_id(client)

    def answers(self) -> list[str]:
        """Send all batches, one after the other; return the answers: `5` was stored, `5=` was a duplicate."""
        found = []
        with RawClient(self._server.port) as client:
            self._last_id(client)
            for lowest, messages, highest in BATCHES:
                body = pb.CommandSend(producer_id=1, sequence_id=lowest, num_messages=messages)
                more = {} if highest is None else {"highest_sequence_id": highest}
                if highest is not None:
                    body.highest_sequence_id = highest
                stored = entry(b"m%d" % lowest, sequence_id=lowest, num_messages_in_batch=messages, **more)
                client.send(C(type=C.SEND, send=body), stored)
                receipt = client.expect(C.SEND_RECEIPT).send_receipt
                found.append(f"{receipt.sequence_id}{'=' if receipt.message_id.ledgerId == U64_MAX else ''}")
        return found

    def unload(self) -> None:
        path = self._topic.replace("://", "/")
        web.request("PUT", f"{self._server.web}/admin/v2/{path}/unload", timeout=60).raise_for_status()

    def _last_id(self, client: RawClient) -> int:
        client.socket.settimeout(60)
        client.ask_lookup(self._topic, authoritative=False)
        client.expect(C.LOOKUP_RESPONSE)
        client.ask_producer(self._topic, 1, producer_name="p", user_provided_producer_name=True)
        return client.expect(C.PRODUCER_SUCCESS).producer_success.last_sequence_id


def test_both_take_the_same_batches_for_duplicates(servers: tuple[StandaloneProcess, StandaloneProcess]) -> None:
    theirs, ours = (Side(server, "persistent://public/default/batches") for server in servers)
    expected = theirs.answers()
    assert ours.answers() == expected
    assert [each for each in expected if "=" in each] == ["0=", "15=", "24=", "26=", "30="], expected
    assert ours.last_id() == theirs.last_id()


def test_both_find_the_same_ids_in_the_log(servers: tuple[StandaloneProcess, StandaloneProcess]) -> None:
    """The topic is loaded again without a snapshot."""
    theirs, ours = (Side(server, "persistent://public/default/found") for server in servers)
    for side in (theirs, ours):
        side.answers()
        side.unload()
    assert ours.last_id() == theirs.last_id()
