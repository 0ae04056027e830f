"""A server whose disk takes no more: adds fail cleanly, it says so, what was acknowledged is read, and it goes on."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess, standalone

pytestmark = pytest.mark.cluster
TOPIC = "persistent://public/default/full"
LIMIT = 1 << 20
"""Below what the journal has by then, above every other file: only the journal finds the disk full."""


def limit_files(server: StandaloneProcess, size: int) -> None:
    """No file of the running server may grow beyond `size` bytes: writes fail as on a full disk, without mounting one."""
    assert server.process is not None
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def fill(client: RawClient, count: int = 300) -> list[bytes]:
    """More than LIMIT bytes, each with a receipt, and a subscription for which they are kept."""
    client.subscribe(TOPIC, "keep", 99)
    payloads = [b"%d-" % number + b"x" * 4096 for number in range(count)]
    for start in range(0, count, 50):
        for number in range(start, start + 50):
            client.send_message(payloads[number], sequence_id=number)
        for number in range(start, start + 50):
            assert client.expect(pb.BaseCommand.SEND_RECEIPT).send_receipt.sequence_id == number
    return payloads


def wait_for_line(server: StandaloneProcess, text: str) -> None:
    deadline = time.monotonic() + 20
    while text not in server.log():
        assert time.monotonic() < deadline, f"no {text!r} in the log"
        time.sleep(0.02)


def read_all(client: RawClient, name: str, count: int) -> list[bytes]:
    client.subscribe(TOPIC, name)
    client.flow(100_000)
    return [client.message()[1] for _ in range(count)]


def test_a_full_disk_refuses_adds_serves_reads_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        server.announced += ["journal group not written, its adds are refused"]
        with RawClient(server.port) as writer, RawClient(server.port) as reader:
            writer.producer(TOPIC)
            stored = fill(writer)
            limit_files(server, LIMIT)
            for number in range(300, 305):
                writer.send_message(b"%d" % number, sequence_id=number)
            wait_for_line(server, "journal group not written, its adds are refused")
            assert writer.silent(), "nothing that is not on the disk may be answered"
            assert read_all(reader, "during", 300) == stored
            assert reader.silent(), "nothing that is not confirmed may be delivered"
            limit_files(server, resource.RLIM_INFINITY)
            receipts = [writer.expect(pb.BaseCommand.SEND_RECEIPT).send_receipt.sequence_id for _ in range(5)]
            assert receipts == list(range(300, 305))
            stored += [b"%d" % number for number in range(300, 305)]
            assert [reader.message()[1] for _ in range(5)] == stored[300:]
            writer.publish(b"after", sequence_id=305)
        server.kill()
        server.start()
        with RawClient(server.port) as client:
            assert read_all(client, "after", 306) == [*stored, b"after"]
            client.producer(TOPIC)
            client.publish(b"and on")
            assert client.message()[1] == b"and on"


def test_a_server_killed_on_a_full_disk_has_everything_it_acknowledged(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        server.announced += ["journal group not written, its adds are refused"]
        with RawClient(server.port) as client:
            client.producer(TOPIC)
            stored = fill(client)
            limit_files(server, LIMIT)
            client.send_message(b"never answered", sequence_id=300)
            wait_for_line(server, "journal group not written, its adds are refused")
            server.kill()
        server.start()
        with RawClient(server.port) as client:
            assert read_all(client, "after", 300) == stored
            client.producer(TOPIC)
            client.publish(b"on")
            assert client.message()[1] == b"on"


def test_adds_fail_after_a_while_on_a_full_disk_and_the_log_is_not_flooded(tmp_path: Path) -> None:
    with standalone(tmp_path, {"managedLedgerMetadataOperationsTimeoutSeconds": 2}) as server:
        server.announced += ["journal group not written, its adds are refused"]
        with RawClient(server.port) as client:
            client.producer(TOPIC)
            stored = fill(client)
            limit_files(server, LIMIT)
            client.send_message(b"refused", sequence_id=300)
            error = client.expect(pb.BaseCommand.SEND_ERROR).send_error
            assert (error.sequence_id, error.error) == (300, pb.PersistenceError)
            client.expect(pb.BaseCommand.CLOSE_PRODUCER)
            assert 1 <= server.log().count("journal group not written") <= 20
            limit_files(server, resource.RLIM_INFINITY)
            client.producer(TOPIC)
            client.publish(b"again", sequence_id=300)
            assert read_all(client, "after", 301) == [*stored, b"again"]
