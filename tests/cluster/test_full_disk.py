"""A server with a full disk: adds fail cleanly, the server logs it, acknowledged data can be read, and it recovers."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support import web
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess, standalone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
TOPIC = "persistent://public/default/full"
LIMIT = 1 << 20
"""Size below that of the journal at that time and above that of every other file: only the journal's writes fail."""


def limit_files(server: StandaloneProcess, size: int) -> None:
    """Keep files of the running server below `size` bytes: writes fail as on a full disk, without mounting one."""
    assert server.process is not None
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def fill(client: RawClient, count: int = 300) -> list[bytes]:
    """Publish more than LIMIT bytes, each message with a receipt, and create a subscription that keeps them."""
    client.subscribe(TOPIC, "keep", 99)
    payloads = [b"%d-" % number + b"x" * 4096 for number in range(count)]
    for start in range(0, count, 50):
        for number in range(start, start + 50):
            client.send_message(payloads[number], sequence_id=number)
        for number in range(start, start + 50):
            assert client.expect(pb.BaseCommand.SEND_RECEIPT).send_receipt.sequence_id == number
    return payloads


def wait_for_line(server: StandaloneProcess, text: str) -> None:
    wait_until(lambda: text in server.log(), f"the log has {text!r}", 20)


def read_all(client: RawClient, name: str, count: int) -> list[bytes]:
    client.subscribe(TOPIC, name)
    client.flow(100_000)
    return [client.message()[1] for _ in range(count)]


ANNOUNCED = ["journal group not written, refusing its adds", "no room", "checkpoint failed"]


def refusal(client: RawClient) -> pb.CommandError:
    """Return the error of a producer that tries to connect."""
    client.send(
        pb.BaseCommand(
            type=pb.BaseCommand.PRODUCER,
            producer=pb.CommandProducer(topic=TOPIC, producer_id=7, request_id=77),
        )
    )
    return client.expect(pb.BaseCommand.ERROR).error


def acknowledge_all(client: RawClient) -> None:
    """Acknowledge durably the messages that `fill` kept."""
    client.flow(100_000, consumer_id=99)
    last = [client.message()[0] for _ in range(300)][-1]
    answer = client.ack(last, consumer_id=99, cumulative=True)
    assert answer is not None
    assert not answer.HasField("error")


def wait_for_room(server: StandaloneProcess) -> None:
    wait_until(lambda: web.get(f"{server.web}/status.html").text == "OK", "the server accepts writes", 20)


def test_a_full_disk_refuses_sends_at_once_serves_reads_and_acks_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        server.announced += ANNOUNCED
        with RawClient(server.port) as writer, RawClient(server.port) as reader:
            writer.producer(TOPIC)
            stored = fill(writer)
            limit_files(server, LIMIT)
            writer.send_message(b"300", sequence_id=300)
            error = writer.expect(pb.BaseCommand.SEND_ERROR).send_error
            assert (error.sequence_id, error.error) == (300, pb.PersistenceError)
            assert "the disk is full" in error.message
            writer.expect(pb.BaseCommand.CLOSE_PRODUCER)
            assert refusal(writer).error == pb.ProducerBlockedQuotaExceededException
            assert "the disk is full" in refusal(writer).message
            status = web.get(f"{server.web}/status.html")
            assert (status.status_code, status.text.partition(":")[0]) == (200, "READ ONLY")
            health = web.get(f"{server.web}/admin/v2/brokers/health")
            assert (health.status_code, "the disk is full" in health.text) == (500, True)
            assert "quire_disk_full 1.0" in web.get(f"{server.web}/metrics").text
            assert read_all(reader, "during", 300) == stored
            assert reader.silent(), "nothing that is not confirmed may be delivered"
            acknowledge_all(writer)
            limit_files(server, resource.RLIM_INFINITY)
            wait_for_room(server)
            writer.producer(TOPIC)
            writer.publish(b"after", sequence_id=305)
            assert reader.message()[1] == b"after"
        server.kill()
        server.start()
        with RawClient(server.port) as client:
            client.subscribe(TOPIC, "keep")
            client.flow(1000)
            assert client.message()[1] == b"after", "what was acknowledged on a full disk stays acknowledged"
            client.producer(TOPIC)
            client.publish(b"and on")
            assert client.message()[1] == b"and on"


def test_a_server_killed_on_a_full_disk_has_everything_it_acknowledged(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        server.announced += ANNOUNCED
        with RawClient(server.port) as client:
            client.producer(TOPIC)
            stored = fill(client)
            limit_files(server, LIMIT)
            client.send_message(b"never stored", sequence_id=300)
            wait_for_line(server, ANNOUNCED[0])
            server.kill()
        server.start()
        with RawClient(server.port) as client:
            assert read_all(client, "after", 300) == stored
            client.producer(TOPIC)
            client.publish(b"on")
            assert client.message()[1] == b"on"
