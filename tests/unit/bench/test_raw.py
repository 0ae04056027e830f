"""Raw generators wait until a server serves their topic."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from bench import raw
from bench.consuming import SUB, RawConsumer
from bench.raw import NotReadyError, RawClient, frame
from quire.wire.pulsar import PulsarApi_pb2 as pb

C = pb.BaseCommand
TOPIC = "persistent://public/default/t"


def refusal(code: pb.ServerError) -> C:
    return C(type=C.ERROR, error=pb.CommandError(request_id=1, error=code, message="Namespace bundle not served"))


def found(error: pb.ServerError | None = None) -> C:
    kinds = pb.CommandLookupTopicResponse
    response = kinds(request_id=2, response=kinds.Connect if error is None else kinds.Failed, error=error)
    return C(type=C.LOOKUP_RESPONSE, lookupTopicResponse=response)


MADE = {
    C.PRODUCER: C(
        type=C.PRODUCER_SUCCESS, producer_success=pb.CommandProducerSuccess(request_id=3, producer_name="made")
    ),
    C.SUBSCRIBE: C(type=C.SUCCESS, success=pb.CommandSuccess(request_id=1)),
}


class Serving:
    """A server of one connection that first gives these answers to lookups and to what follows them."""

    def __init__(self, listener: socket.socket, refusals: Sequence[C]) -> None:
        self.listener = listener
        self.refusals = list(refusals)
        self.asked: list[C.Type] = []
        self.port: int = listener.getsockname()[1]

    def run(self) -> None:
        peer, _ = self.listener.accept()
        with peer, peer.makefile("rb") as lines:
            while head := lines.read(8):
                body = lines.read(int.from_bytes(head[:4], "big") - 4)
                command = C.FromString(body)
                self.asked.append(command.type)
                peer.sendall(frame(self.answer(command.type)))

    def answer(self, kind: C.Type) -> C:
        if kind == C.CONNECT:
            return C(type=C.CONNECTED, connected=pb.CommandConnected(server_version="s"))
        if kind == C.PARTITIONED_METADATA:
            done = pb.CommandPartitionedTopicMetadataResponse(request_id=1, partitions=0)
            return C(type=C.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=done)
        if self.refusals and (kind == C.LOOKUP) == (self.refusals[0].type == C.LOOKUP_RESPONSE):
            return self.refusals.pop(0)
        return found() if kind == C.LOOKUP else MADE[kind]


@contextmanager
def serving(*refusals: C) -> Iterator[Serving]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Serving(listener, refusals)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server
        finally:
            thread.join(5)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "TRY_AGAIN_S", 0.01)


def test_a_consumer_looks_a_topic_up_again_until_its_bundle_is_served() -> None:
    with serving(refusal(pb.ServiceNotReady), found(pb.ServiceNotReady), refusal(pb.ConsumerBusy)) as server:
        RawConsumer(server.port, TOPIC, "s", SUB.Exclusive, 10).socket.close()
    asked = [each for each in server.asked if each in (C.LOOKUP, C.SUBSCRIBE)]
    assert asked == [C.LOOKUP, C.SUBSCRIBE, C.LOOKUP, C.LOOKUP, C.SUBSCRIBE, C.LOOKUP, C.SUBSCRIBE]


def test_a_producer_has_the_name_of_the_attempt_that_succeeded() -> None:
    with serving(refusal(pb.ServiceNotReady)) as server:
        client = RawClient("127.0.0.1", server.port)
        assert client.producer(TOPIC) == "made"
        client.socket.close()


def test_another_refusal_and_a_wait_without_end_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(refusal(pb.AuthorizationError)) as server:
        client = RawClient("127.0.0.1", server.port)
        with pytest.raises(RuntimeError, match="unexpected answer"):
            client.producer(TOPIC)
        client.socket.close()
    monkeypatch.setattr(raw, "READY_S", 0.05)
    with serving(*[refusal(pb.ServiceNotReady)] * 1000) as server:
        client = RawClient("127.0.0.1", server.port)
        with pytest.raises(NotReadyError, match=f"{TOPIC} was not served .* bundle not served"):
            client.producer(TOPIC)
        client.socket.close()
