"""SIGKILL of a real server on a real disk: what was answered still holds after the restart."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pulsar
import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support import web
from tests.support.pulsar_frames import U64_MAX
from tests.support.raw import RawClient
from tests.support.server import standalone

pytestmark = pytest.mark.cluster
TOPIC = "persistent://public/default/kill"


def test_an_answered_ack_is_never_delivered_again(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        for round_number in range(3):
            with RawClient(server.port) as client:
                client.producer(TOPIC)
                client.subscribe(TOPIC)
                ids = [client.publish(b"%d-%d" % (round_number, number), sequence_id=number) for number in range(10)]
        with RawClient(server.port) as client:
            client.subscribe(TOPIC)
            for index in (1, 4, 5):
                answer = client.ack(ids[index])
                assert answer is not None
                assert not answer.HasField("error")
            server.kill()
        server.start()
        with RawClient(server.port) as client:
            client.subscribe(TOPIC)
            client.flow(1000)
            seen = [client.message()[1] for _ in range(27)]
            assert client.silent()
        assert len(set(seen)) == 27
        assert not set(seen) & {b"2-1", b"2-4", b"2-5"}


def test_every_receipt_survives_kills_under_load(tmp_path: Path) -> None:
    """Each of four rounds publishes with a full window, kills and restarts; then everything is read."""
    with standalone(tmp_path) as server:
        confirmed: dict[tuple[int, int], bytes] = {}
        for round_number in range(4):
            with RawClient(server.port) as client:
                client.producer(TOPIC)
                stop = threading.Timer(0.2, server.kill)
                sent = 0
                try:
                    while True:
                        for _ in range(50):
                            client.send_message(b"%d/%d" % (round_number, sent), sequence_id=sent)
                            sent += 1
                        for _ in range(50):
                            receipt = client.expect(pb.BaseCommand.SEND_RECEIPT).send_receipt
                            place = (receipt.message_id.ledgerId, receipt.message_id.entryId)
                            assert place not in confirmed
                            confirmed[place] = b"%d/%d" % (round_number, receipt.sequence_id)
                        if sent == 50:
                            stop.start()
                except OSError:
                    pass
                stop.join()
            server.start()
        assert len(confirmed) >= 4 * 50
        with RawClient(server.port) as client:
            client.subscribe(TOPIC, "reader")
            client.flow(1_000_000)
            found: dict[tuple[int, int], bytes] = {}
            missing = set(confirmed)
            while missing:
                message_id, payload = client.message()
                found[message_id.ledgerId, message_id.entryId] = payload
                missing.discard((message_id.ledgerId, message_id.entryId))
        assert {place: found[place] for place in confirmed} == confirmed
        assert list(found) == sorted(found)


def test_the_official_client_goes_on_after_a_kill(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        client = pulsar.Client(server.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        consumer = client.subscribe(TOPIC, "s")
        producer = client.create_producer(TOPIC, batching_enabled=False, send_timeout_millis=60_000)
        results: list[object] = []
        for number in range(400):
            producer.send_async(b"%d" % number, lambda result, _: results.append(result))
            if number == 200:
                server.kill()
                server.start()
        producer.flush()
        seen: dict[bytes, int] = {}
        while len(seen) < 400:
            message = consumer.receive(20_000)
            seen[message.data()] = seen.get(message.data(), 0) + 1
            consumer.acknowledge(message)
        assert results == [pulsar.Result.Ok] * 400
        client.close()


def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        command = [sys.executable, "-m", "quire.cli.main", "standalone", "--data-dir", str(server.data)]
        second = subprocess.run(
            [*command, "--broker-port", "0", "--web-port", "0"], capture_output=True, text=True, timeout=30, check=False
        )
        assert second.returncode == 1
        assert "in use" in second.stderr
        with RawClient(server.port) as client:
            client.producer(TOPIC)
            client.publish(b"still here")


def test_sigterm_stops_cleanly_and_restarts_without_replay(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        with RawClient(server.port) as client:
            client.producer(TOPIC)
            client.subscribe(TOPIC)
            ids = [client.publish(b"%d" % number, sequence_id=number) for number in range(20)]
            client.ack(ids[3])
        assert server.stop() == 0
        server.start()
        with RawClient(server.port) as client:
            client.subscribe(TOPIC)
            client.flow(100)
            assert [client.message()[1] for _ in range(19)] == [b"%d" % n for n in range(20) if n != 3]


def test_the_ready_line_names_addresses_that_answer(tmp_path: Path) -> None:
    with standalone(tmp_path) as server:
        assert f"broker=pulsar://127.0.0.1:{server.port}" in server.log()
        assert web.get(f"{server.web}/status.html").text.startswith("OK")
        assert web.get(f"{server.web}/admin/v2/brokers/health", timeout=30).text == "ok"
        assert web.get(f"{server.web}/nothing").status_code == 404


def test_a_stopped_server_that_continues_is_still_right(tmp_path: Path) -> None:
    """After SIGSTOP for a while and SIGCONT the server is slow, but its answers are right."""
    with standalone(tmp_path) as server, RawClient(server.port) as client:
        client.producer(TOPIC)
        client.subscribe(TOPIC)
        client.publish(b"before")
        server.pause()
        client.send_message(b"during", sequence_id=1)
        assert client.silent(0.5)
        server.resume()
        client.expect(pb.BaseCommand.SEND_RECEIPT)
        client.flow(10)
        assert [client.message()[1] for _ in range(2)] == [b"before", b"during"]


def last_sequence_id(client: RawClient) -> int:
    """Connect the producer `once`; return the last sequence id it is told."""
    client.ask_producer(TOPIC, producer_name="once")
    return client.expect(pb.BaseCommand.PRODUCER_SUCCESS).producer_success.last_sequence_id


def test_with_deduplication_each_message_is_there_once_after_kills(tmp_path: Path) -> None:
    """A producer of one name sends what it has no receipt for again, and is told what the log has: five kills under
    load, with snapshots on the way."""
    conf: dict[str, object] = {"brokerDeduplicationEnabled": "true", "brokerDeduplicationEntriesInterval": 40}
    with standalone(tmp_path, conf) as server:
        confirmed = -1
        with RawClient(server.port) as client:
            client.subscribe(TOPIC, "reader")
        for _ in range(5):
            stop = threading.Timer(0.3, server.kill)
            with RawClient(server.port) as client:
                last = last_sequence_id(client)
                assert last >= confirmed  # nothing confirmed is lost; what was stored without a receipt is known
                try:
                    begun, sent = False, max(confirmed - 5, -1)  # some again that it has a receipt for
                    while True:
                        numbers = range(sent + 1, sent + 51)
                        for number in numbers:
                            client.send_message(b"%d" % number, sequence_id=number, producer_name="once")
                        for number in numbers:
                            receipt = client.expect(pb.BaseCommand.SEND_RECEIPT).send_receipt
                            assert receipt.sequence_id == number
                            assert (receipt.message_id.ledgerId == U64_MAX) == (number <= last)
                            confirmed = max(confirmed, number)
                        sent = numbers[-1]
                        if not begun:
                            begun = True
                            stop.start()
                except OSError:
                    pass
                stop.join()
            server.start()
        assert confirmed >= 5 * 50
        with RawClient(server.port) as client:
            last = last_sequence_id(client)
            client.subscribe(TOPIC, "reader")
            client.flow(1_000_000)
            assert [int(client.message()[1]) for _ in range(last + 1)] == list(range(last + 1))
            assert client.silent()


def test_an_exclusive_producer_is_fenced_by_the_one_before_a_kill(tmp_path: Path) -> None:
    mode = {"producer_access_mode": pb.Exclusive}
    with standalone(tmp_path) as server:
        for epoch in range(2):
            with RawClient(server.port) as client:
                client.ask_producer(TOPIC, **mode)
                assert client.expect(pb.BaseCommand.PRODUCER_SUCCESS).producer_success.topic_epoch == epoch
                if epoch:
                    server.kill()
        server.start()
        with RawClient(server.port) as client:
            client.ask_producer(TOPIC, topic_epoch=0, **mode)
            assert client.expect(pb.BaseCommand.ERROR).error.error == pb.ProducerFenced
            client.ask_producer(TOPIC, topic_epoch=1, **mode)
            assert client.expect(pb.BaseCommand.PRODUCER_SUCCESS).producer_success.topic_epoch == 1
