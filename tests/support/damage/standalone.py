"""A standalone server: topics of several ledgers, subscriptions with acknowledgements, and the requests for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from quire.cli.doctor import examine_standalone
from quire.servers.addresses import Addresses
from quire.servers.process import exit_code
from quire.servers.standalone.config import STANDALONE, StandaloneConfig
from quire.servers.standalone.process import run_standalone
from quire.service import log
from quire.service.config import parse
from quire.service.properties import parse_properties
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.damage import Finding
from quire.world.real import real_world
from quire.world.real_disk import RealDisk
from quire.world.real_look import look_into
from quire.world.unwrap import leaves
from tests.support.damage.judging import answer, dropped_tail, refused, troubles
from tests.support.damage.places import Case, Stop
from tests.support.damage.verdicts import Verdict
from tests.support.raw import RawClient

TOPICS: Final = tuple(f"persistent://public/default/damage-{number}" for number in range(3))
_PER_SESSION: Final = 14
_STALL_S: Final = 1.5
"""Seconds without a message after which a reader that expects more has stalled."""
_CONF: Final = """
bindAddress=127.0.0.1
brokerServicePort=0
managedLedgerMaxEntriesPerLedger=5
managedLedgerMinLedgerRolloverTimeMinutes=0
journalPreAllocSizeMB=1
journalMaxBackups=1
logSizeLimit=1048576
retentionCheckIntervalInSeconds=3600
topicLoadTimeoutSeconds=2
defaultRetentionTimeInMinutes=-1
defaultRetentionSizeInMB=-1
"""


def incarnations(stop: Stop) -> int:
    return 1 if stop is Stop.UNFLUSHED else 2


def _config(flush_ms: int) -> StandaloneConfig:
    text = f"{_CONF}quireDiskReserveMb=0\nflushInterval={flush_ms}\n"
    return STANDALONE.build(parse(parse_properties(text, STANDALONE.grammar, source="damage"), STANDALONE.keys()))


class _KilledError(Exception):
    """Raised in place of a close: the parent kills the process as soon as it has the answer."""


def _served(data: Path, flush_ms: int, job: Callable[[int], dict[str, Any]], *, clean: bool) -> dict[str, Any]:
    """Return the result of `job`, given the port of a server; the server is stopped, or left running to be killed."""
    answers: list[dict[str, Any]] = []

    async def main() -> None:
        stop = trio.Event()
        ports: list[Addresses] = []
        ready = trio.Event()

        def is_ready(addresses: Addresses) -> None:
            ports.append(addresses)
            ready.set()

        async with trio.open_nursery() as nursery:
            serve = partial(run_standalone, data_dir=str(data), ready=is_ready, stop=stop, http=False)
            nursery.start_soon(serve, real_world(), _config(flush_ms), name="server")
            await ready.wait()
            assert ports[0].broker is not None
            answers.append(await trio.to_thread.run_sync(job, ports[0].broker[1]))
            if not clean:
                raise _KilledError
            stop.set()

    try:
        trio.run(main)
    except BaseException as error:
        if not any(isinstance(leaf, _KilledError) for leaf in leaves(error)):
            raise
    return answers[0]


def live(data: Path, stop: Stop, number: int, before: dict[str, Any]) -> dict[str, Any]:
    """Run one incarnation; return the acknowledged data at its end."""
    log.configure("info")
    last = number + 1 == incarnations(stop)
    job = partial(_write, data, number, before, flushes=stop is not Stop.UNFLUSHED)
    flush_ms = 3_600_000 if stop is Stop.UNFLUSHED else 1000
    return _served(data, flush_ms, job, clean=stop is Stop.CLEAN and last)


def _write(data: Path, number: int, before: dict[str, Any], port: int, *, flushes: bool) -> dict[str, Any]:
    known: dict[str, Any] = before or {"messages": {topic: [] for topic in TOPICS}, "acked": {}}
    known["acked"] = {topic: [] for topic in TOPICS} | known["acked"]
    with RawClient(port) as client:
        for index, topic in enumerate(TOPICS):
            client.producer(topic, producer_id=index)
            client.subscribe(topic, "sub", consumer_id=index, subType=pb.CommandSubscribe.Shared)
        _publish(client, known, number * 2)
        for index, topic in enumerate(TOPICS):
            client.flow(6, consumer_id=index)
            ids = [client.message()[0] for _ in range(6)]
            for each in ids[:4]:
                response = client.ack(each, consumer_id=index)
                assert response is not None
                assert not response.HasField("error"), response
                known["acked"][topic].append([each.ledgerId, each.entryId])
        if flushes:
            mark = data / "bookie/ledgers/current/lastMark"
            old, deadline = mark.read_bytes(), time.monotonic() + 20
            while mark.read_bytes() == old:
                assert time.monotonic() < deadline, "no checkpoint came"
                time.sleep(0.01)
            _publish(client, known, number * 2 + 1)
    return known


def _publish(client: RawClient, known: dict[str, Any], turn: int) -> None:
    for index, topic in enumerate(TOPICS):
        for number in range(_PER_SESSION):
            text = b"%s turn %d number %d " % (topic[-1:].encode(), turn, number)
            text += b"x" * (1500 if number % 6 == 0 else 60)
            found = client.publish(text, producer_id=index, sequence_id=turn * 1000 + number)
            known["messages"][topic].append([found.ledgerId, found.entryId, text.decode()])


def look(data: Path, log_path: Path, acknowledged: dict[str, Any], case: Case) -> dict[str, str]:
    """Start a server on the damaged copy and request all acknowledged data."""
    log.configure("info")
    try:
        return _served(data, 500, partial(_ask, log_path, acknowledged), clean=False)
    except BaseException as error:
        if exit_code(error) is None:
            raise
        return refused(case, "; ".join(map(str, leaves(error))))


def examine(data: Path, stop: Stop) -> list[Finding]:
    """Return the damage that `quire doctor` finds."""
    return examine_standalone(RealDisk(), look_into, str(data), lambda what, count: None).damaged


class _RefusedError(Exception):
    """A command was answered with an error."""


class _Client(RawClient):
    def receive_frame(self) -> tuple[pb.BaseCommand, bytes]:
        command, tail = super().receive_frame()
        for name in ("error", "send_error", "close_producer", "close_consumer"):
            if command.HasField(name):
                raise _RefusedError(f"{name}: {getattr(command, name)}".replace("\n", " "))
        return command, tail

    def read(self, topic: str, subscription: str, last: tuple[int, int], **options: Any) -> list[list[Any]]:
        """Return the deliveries until message `last`, or until none comes any more."""
        self.subscribe(topic, subscription, **options)
        self.flow(1000)
        self.socket.settimeout(_STALL_S)
        seen: list[list[Any]] = []
        try:
            while not seen or (seen[-1][0], seen[-1][1]) != last:
                found, payload = self.message()
                seen.append([found.ledgerId, found.entryId, payload.decode(errors="replace")])
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(10)
        return seen


def _ask(log_path: Path, acknowledged: dict[str, Any], port: int) -> dict[str, str]:
    """Read all topics at the same time, because a reader that stalls takes long."""
    given: dict[str, list[tuple[Verdict, str]]] = {topic: [] for topic in TOPICS}
    ledgers = {message[0] for messages in acknowledged["messages"].values() for message in messages}

    def one(topic: str) -> None:
        try:
            given[topic] = _topic(port, topic, acknowledged["messages"][topic], acknowledged["acked"][topic], ledgers)
        except (OSError, AssertionError) as error:
            given[topic] = [(Verdict.CRASHED, f"{topic}: {error!r}")]

    threads = [threading.Thread(target=one, args=(topic,)) for topic in TOPICS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found: list[tuple[Verdict, str]] = [each for topic in TOPICS for each in given[topic]]
    said = log_path.read_text()
    # A reader that stands still, and a log that says nothing of it, is a silent loss.
    warned = troubles(said)
    judged: list[tuple[Verdict, str]] = []
    for verdict, detail in found:
        if verdict is Verdict.ERROR and detail.startswith("still") and not warned:
            verdict = Verdict.SILENT
        if verdict is Verdict.SILENT and (tail := dropped_tail(said)):
            verdict, detail = Verdict.TAIL, f"{detail} {tail}"
        judged.append((verdict, detail))
    worst = max(judged, key=lambda each: list(Verdict).index(each[0]), default=(Verdict.RIGHT, ""))
    trouble = f" | {warned[0]}" if warned else ""
    return answer(worst[0], worst[1] + trouble)


def _topic(
    port: int, topic: str, messages: list[list[Any]], acked: list[list[int]], ledgers: set[int]
) -> list[tuple[Verdict, str]]:
    found: list[tuple[Verdict, str]] = []
    with _Client(port) as client:
        try:
            client.producer(topic)
            marker = client.publish(b"marker")
        except _RefusedError as error:
            return [(Verdict.ERROR, f"refused: {error}")]
    last = (marker.ledgerId, marker.entryId)
    if marker.ledgerId <= max(ledgers):
        found.append((Verdict.WRONG, f"{topic}: id {last} although {max(ledgers)} was given out"))
    wanted = {(m[0], m[1]): m[2] for m in messages} | {last: "marker"}
    gone = {tuple(each) for each in acked}
    for subscription, expected in (("fresh", set(wanted)), ("sub", set(wanted) - gone)):
        durable = subscription == "sub"
        kind = pb.CommandSubscribe.Shared if durable else pb.CommandSubscribe.Exclusive
        try:
            with _Client(port) as client:
                seen = client.read(topic, subscription, last, subType=kind)
        except _RefusedError as error:
            found.append((Verdict.ERROR, f"refused: {error}"))
            continue
        ids = [(each[0], each[1]) for each in seen]
        for each in seen:
            if wanted.get((each[0], each[1])) != each[2]:
                found.append((Verdict.WRONG, f"{topic} {subscription}: {each[0]}:{each[1]} is {each[2][:40]!r}"))
        if again := gone & set(ids) & (gone if durable else set()):
            found.append((Verdict.WRONG, f"{topic}: acknowledged, and delivered again: {sorted(again)[:3]}"))
        if missing := sorted(expected - set(ids)):
            still = last not in ids
            # What stands behind the place where a reader stopped is not missed yet; what it passed over is.
            passed = [each for each in missing if ids and each < max(ids)]
            if still and not passed:
                found.append((Verdict.ERROR, f"still at {ids[-1:]}, {len(missing)} to come on {topic} {subscription}"))
            else:
                found.append(
                    (Verdict.SILENT, f"{topic} {subscription}: {len(missing)} of {len(expected)} {missing[:3]}")
                )
    return found
