"""Stories of brokers: two brokers and three bookies, official clients, and a link between a broker and the metadata.

Processes are called `broker-0`, `broker-1`, `bookie-0`, ...; `owner` is the broker that had the topic when a step named
the topic last, `other` the one that had not. Topics are of public/default.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

import pulsar
import trio

from tests.support.bad_links import BadLink
from tests.support.broker_process import ADMIN, BrokerCluster, BrokerProcess, client_of
from tests.support.datadriven import Line
from tests.support.process import ServerProcess, start_all
from tests.support.stories.text import Stage, Story
from tests.support.traffic import Traffic, traffic

T = TypeVar("T")

READ_MS = 10_000
BRING_TRIES, BRING_S = 6, 5.0


class Sender:
    """A producer on one broker, whose messages begin with its name."""

    def __init__(self, name: str, topic: str, producer: pulsar.Producer) -> None:
        self.name = name
        self.topic = topic
        self.first_ledger = -1
        """The ledger of its first message: the one that is fenced later."""
        self.last_ledger = -1
        self.sent: list[bytes] = []
        self.answers: list[tuple[str, int]] = []
        """Result and ledger of each message that was sent without waiting."""
        self._producer = producer

    def send(self, count: int) -> None:
        for _ in range(count):
            self.last_ledger = self._producer.send(self._next()).ledger_id()
            if self.first_ledger < 0:
                self.first_ledger = self.last_ledger

    def send_async(self, count: int) -> None:
        for _ in range(count):
            self._producer.send_async(
                self._next(), lambda result, at: self.answers.append((str(result), at.ledger_id()))
            )

    def _next(self) -> bytes:
        self.sent.append(b"%s-%d" % (self.name.encode(), len(self.sent)))
        return self.sent[-1]


class BrokerStage(Stage):
    """The cluster of a module; each story leaves all its processes running."""

    def __init__(self, cluster: BrokerCluster, link: BadLink, stack: ExitStack) -> None:
        super().__init__()
        self._cluster = cluster
        self._link = link
        self._stack = stack
        """The clients of the story."""
        self._names: dict[str, ServerProcess] = {}
        self._traffic: Traffic | None = None
        self._senders: dict[str, Sender] = {}
        self._bundles = 0

    async def finish(self) -> None:
        """The traffic has ended well, and all clients are closed."""
        await _blocking(self._stack.close)

    # --- processes

    def _process(self, name: str) -> ServerProcess:
        if name.startswith("bookie-"):
            return self._cluster.bookies[int(name.removeprefix("bookie-"))]
        return self._broker(name)

    def _broker(self, name: str) -> BrokerProcess:
        found = self._names.get(name) or self._cluster.brokers[int(name.removeprefix("broker-"))]
        assert isinstance(found, BrokerProcess)
        return found

    def _processes(self, line: Line) -> list[ServerProcess]:
        names, line.words = line.words, []
        return [self._process(name) for name in names]

    async def step_kill(self, line: Line) -> None:
        """kill -9 NAME...: all at once."""
        assert line.word() == "-9"
        await self.kill(self._processes(line))

    async def step_stop(self, line: Line) -> int:
        """stop NAME -> exit code."""
        self.hurt_at = trio.current_time()
        return await _blocking(self._process(line.word()).stop)

    async def step_start(self, line: Line) -> None:
        await _blocking(partial(start_all, *self._processes(line)))

    async def step_launch(self, line: Line) -> None:
        """launch NAME...: start, without waiting."""
        for each in self._processes(line):
            each.launch()

    async def step_let_run(self, line: Line) -> None:
        """let-run SECONDS: what comes next finds the processes wherever they are then."""
        await trio.sleep(float(line.word()))

    async def step_pause(self, line: Line) -> None:
        self.hurt_at = trio.current_time()
        for each in self._processes(line):
            await _blocking(each.pause)

    async def step_resume(self, line: Line) -> None:
        for each in self._processes(line):
            each.resume()

    async def step_restart_in_turn(self, line: Line) -> None:
        """restart-in-turn COUNT: bookies, by SIGTERM and by SIGKILL, the next one when the traffic has gone on."""
        for number in range(line.number()):
            bookie = self._cluster.bookies[number % len(self._cluster.bookies)]
            if number % 2:
                await _blocking(bookie.kill)
            else:
                assert await _blocking(bookie.stop) == 0
            await _blocking(bookie.start)
            await _blocking(partial(self._running.wait_for_more, 20, seconds=60))

    async def step_cut(self, line: Line) -> None:
        """cut: nothing passes between `broker-0` and the metadata."""
        self.hurt_at = trio.current_time()
        self._link.cut()

    async def step_heal(self, line: Line) -> None:
        self._link.heal()

    # --- owners

    async def step_owner(self, line: Line) -> str:
        """owner TOPIC -> the broker that has it: broker-N, `owner` or `other`, as of before."""
        owner = await _blocking(partial(self._cluster.owner_of, _topic(line)))
        if not self._names:
            self._name_owner(owner)
        given = f"broker-{self._cluster.brokers.index(owner)}"
        return next((name for name, each in self._names.items() if each is owner), given)

    async def _know_owner(self, topic: str) -> None:
        self._name_owner(await _blocking(partial(self._cluster.owner_of, topic)))

    def _name_owner(self, owner: BrokerProcess) -> None:
        self._names = {"owner": owner, "other": self._cluster.other(owner)}

    async def step_move(self, line: Line) -> None:
        """move TOPIC BROKER: have its bundle unloaded to that broker, and wait until it is there."""
        topic = _topic(line)
        await self._know_owner(topic)
        target = self._broker(line.word())
        await _blocking(partial(self._cluster.move, topic, target))
        self._name_owner(target)

    async def step_bring(self, line: Line) -> None:
        """bring TOPIC BROKER: move it if it is not there, and again while the broker has just come back and takes no
        bundle yet."""
        topic, target = _topic(line), self._broker(line.word())
        for _ in range(BRING_TRIES):
            await self._know_owner(topic)
            if self._names["owner"] is target:
                return
            with suppress(AssertionError):
                await _blocking(partial(self._cluster.move, topic, target, BRING_S))
        raise AssertionError("the broker does not take it")

    async def step_split(self, line: Line) -> None:
        """split TOPIC: its bundle."""
        broker = self._cluster.brokers[0]
        self._bundles = _bundles(broker)
        bundle = broker.ask("GET", f"/lookup/v2/topic/{_topic(line).replace('://', '/')}/bundle").text
        path = f"{ADMIN}/namespaces/public/default/{bundle}/split?unload=true"
        answer = await _blocking(partial(broker.ask, "PUT", path, follow_redirects=True))
        assert answer.status_code == 204, answer.text

    async def is_one_bundle_more(self, line: Line) -> bool:
        """All brokers see it; by their watches, and so a moment later."""
        return {_bundles(broker) for broker in self._cluster.brokers} == {self._bundles + 1}

    async def is_known(self, line: Line) -> bool:
        """until known BROKER... by=BROKER: exactly these are in its list."""
        wanted = sorted(self._broker(name).id for name in line.words)
        line.words.clear()
        asked = self._broker(line.option("by"))
        found: list[str] = (await _blocking(partial(asked.ask, "GET", f"{ADMIN}/brokers"))).json()
        return sorted(found) == wanted

    # --- clients

    async def step_traffic(self, line: Line) -> None:
        """traffic TOPIC: a producer and a consumer that go on until the end of the story, whatever happens."""
        topic = _topic(line)
        await self._know_owner(topic)
        client = self._stack.enter_context(client_of(*self._cluster.brokers))
        self._traffic = await _blocking(partial(self._stack.enter_context, traffic(client, topic)))

    @property
    def _running(self) -> Traffic:
        assert self._traffic is not None, "the story has no traffic"
        return self._traffic

    async def step_goes_on(self, line: Line) -> None:
        """goes-on COUNT within S: so many more messages are sent, and received."""
        await _blocking(partial(self._running.wait_for_more, line.number(), seconds=float("inf")))

    async def step_gaps(self, line: Line) -> None:
        """gaps below=S: between two receipts or deliveries since the last kill, stop or pause."""
        limit = float(line.option("below"))
        found = max(self._running.longest_gaps(time.monotonic() - (trio.current_time() - self.hurt_at)))
        assert found <= limit, f"{found:.2f} s"

    async def step_producer(self, line: Line) -> None:
        """producer NAME topic=T on=BROKER"""
        name, topic, broker = line.word(), _full(line.option("topic")), self._broker(line.option("on"))
        client = self._stack.enter_context(client_of(broker))
        create = partial(client.create_producer, topic, name, batching_enabled=False, send_timeout_millis=0)
        self._senders[name] = Sender(name, topic, await _blocking(create))

    def _sender(self, line: Line) -> Sender:
        return self._senders[line.word()]

    async def step_send(self, line: Line) -> None:
        """send PRODUCER COUNT: each when the one before it is confirmed."""
        await _blocking(partial(self._sender(line).send, line.number()))

    async def is_serving(self, line: Line) -> bool:
        """stays serving PRODUCER: one message after the other is confirmed."""
        await _blocking(partial(self._sender(line).send, 1))
        return True

    async def step_send_async(self, line: Line) -> None:
        """send-async PRODUCER COUNT: without waiting."""
        self._sender(line).send_async(line.number())

    async def is_unanswered(self, line: Line) -> bool:
        """No message of `send-async` has an answer."""
        return not self._sender(line).answers

    async def is_fenced(self, line: Line) -> bool:
        """No message of `send-async` was stored in the producer's first ledger."""
        sender = self._sender(line)
        return sender.first_ledger not in {ledger_id for _, ledger_id in sender.answers}

    async def is_answered(self, line: Line) -> bool:
        """until answered PRODUCER COUNT: all of `send-async`, well, and none in the producer's first ledger."""
        sender, count = self._sender(line), line.number()
        if len(sender.answers) < count:
            return False
        assert {result for result, _ in sender.answers} == {"Result.Ok"}
        assert sender.first_ledger not in {ledger_id for _, ledger_id in sender.answers}
        return True

    async def step_other_ledger(self, line: Line) -> None:
        """other-ledger ONE TWO: the last message of one is not in the first ledger of the other."""
        one, two = self._sender(line), self._sender(line)
        assert one.last_ledger != two.first_ledger

    async def step_read_all(self, line: Line) -> None:
        """read-all TOPIC on=BROKER twice=yes|no: every message that was sent, in the order of its producer; `twice=yes`
        if one that was sent again may be there twice."""
        topic, broker, may_repeat = _topic(line), self._broker(line.option("on")), line.option("twice") == "yes"
        senders = [each for each in self._senders.values() if each.topic == topic]
        client = self._stack.enter_context(client_of(broker))
        found = await _blocking(partial(_read_all, client, topic, {each for of in senders for each in of.sent}))
        first = list(dict.fromkeys(found))
        assert may_repeat or first == found, f"{len(found) - len(first)} were received twice"
        for sender in senders:
            assert [each for each in first if each.startswith(b"%s-" % sender.name.encode())] == sender.sent


def _read_all(client: pulsar.Client, topic: str, wanted: set[bytes]) -> list[bytes]:
    consumer = client.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
    found: list[bytes] = []
    while wanted - set(found):
        found.append(consumer.receive(READ_MS).data())
    return found


def _bundles(broker: BrokerProcess) -> int:
    return int(broker.ask("GET", f"{ADMIN}/namespaces/public/default/bundles").json()["numBundles"])


def _topic(line: Line) -> str:
    """Take the next word, the name of a topic."""
    return _full(line.word())


def _full(name: str) -> str:
    return f"persistent://public/default/{name}"


async def _blocking(call: Callable[[], T]) -> T:
    """Make a blocking call, which is left behind when its step has no time any more."""
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True)


async def play(story: Story, cluster: BrokerCluster, link: BadLink) -> None:
    """Play a story."""
    with ExitStack() as stack:
        await BrokerStage(cluster, link, stack).play(story)
