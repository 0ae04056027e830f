"""Stories of one subscription as text, in testdata/*.txt: steps of consumers, over the log of `fakes`.

    story test_a_consumer_that_leaves_gives_back_what_it_holds kind=Shared,Key_Shared
    on $kind unacked_messages_per_consumer_max=4
    join a permits=10
    publish 0..3
    gets a -> 0 1 2 3
    ack a 1
    leave a

The first step names the type of the subscription, `cold` if nothing is in the cache, and options of the broker. Entries
are numbers, which are their payloads too: `0..3` are four. The other verbs are the methods of `StagePlayer`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio
import trio.testing

from broker.dispatch.consumer import Consumer
from broker.dispatch.subscription import Subscription
from managed_ledger.errors import ManagedLedgerReadError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.datadriven import Line
from tests.support.stories.text import Step, Story, StoryError
from tests.support.waiting import until
from tests.unit.broker.fakes import LEDGER, Stage, commands, counts, delivered, on_stage


def numbers(line: Line) -> list[int]:
    """Take the rest of the words: numbers and spans of them."""
    found: list[int] = []
    while line.words:
        first, last = line.span()
        found += range(first, last + 1)
    return found


def places(line: Line) -> list[Position]:
    return [Position(LEDGER, number) for number in numbers(line)]


class StagePlayer:
    """Plays the steps of one story."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.subscription = stage.subscription
        self.consumers: dict[str, Consumer[Subscription]] = {}

    def taken(self, line: Line) -> Consumer[Subscription]:
        """Take the name of a consumer."""
        return self.consumers[line.word()]

    def step_join(self, line: Line) -> None:
        name, permits = line.word(), line.option_number("permits", 0)
        self.consumers[name] = self.stage.join(name, priority=line.option_number("priority", 0), permits=permits)

    def step_publish(self, line: Line) -> None:
        """Publish entries; `of=m` are the chunks `m-0` and so on of `chunks=` in all."""
        fields: dict[str, Any] = {}
        if "batch" in line.options:
            fields["num_messages_in_batch"] = line.option_number("batch")
        if "key" in line.options:
            key = line.option("key")
            fields["partition_key"] = self.key_of(key.removeprefix("of-")) if key.startswith("of-") else key
        uuid = line.option("of", "")
        if not uuid:
            self.stage.publish(*[b"%d" % number for number in numbers(line)], **fields)
            return
        count = line.option_number("chunks")
        for number in numbers(line):
            self.stage.publish(f"{uuid}-{number}".encode(), uuid=uuid, chunk_id=number, num_chunks_from_msg=count)

    def key_of(self, name: str) -> str:
        """Return the first key that belongs to a consumer."""
        policy = self.subscription._policy
        keys = (f"k{number}" for number in range(1000))
        return next(key for key in keys if policy._owner(policy.hash_of(key.encode())).consumer is self.consumers[name])

    def step_flow(self, line: Line) -> None:
        self.subscription.flow(self.taken(line), line.number())

    def step_gets(self, line: Line) -> str:
        """Return the payloads sent since the last look."""
        return " ".join(payload.decode() for payload in delivered(self.taken(line))) or "nothing"

    def step_number(self, line: Line) -> str:
        """Return the number of messages sent since the last look."""
        return str(len(delivered(self.taken(line))))

    def step_both(self, line: Line) -> str:
        """Return what one of two consumers was sent since the last look; the other one has nothing."""
        found = [delivered(self.taken(line)), delivered(self.taken(line))]
        assert [] in found, found
        return " ".join(payload.decode() for payload in [*found[0], *found[1]])

    def step_counts(self, line: Line) -> str:
        """Return the payloads sent since the last look, with their redelivery counts."""
        return " ".join(f"{payload.decode()}*{count}" for payload, count in counts(self.taken(line))) or "nothing"

    def step_told(self, line: Line) -> str:
        """Return what a consumer was told of the active one."""
        kind = pb.BaseCommand.ACTIVE_CONSUMER_CHANGE
        found = [command for command, _ in commands(self.taken(line)) if command.type == kind]
        return " ".join("active" if each.active_consumer_change.is_active else "passive" for each in found) or "nothing"

    def step_ack(self, line: Line) -> None:
        """Acknowledge entries; with `left=` the bits that are left of each batch."""
        consumer, left = self.taken(line), line.option("left", "")
        if left:
            self.subscription.ack_individual(consumer, [], [(place, (int(left, 2),)) for place in places(line)])
        else:
            self.subscription.ack_individual(consumer, places(line), [])

    def step_nack(self, line: Line) -> None:
        """Ask for entries again, or for everything."""
        self.subscription.redeliver(self.taken(line), places(line))

    def step_pump(self, line: Line) -> None:
        self.subscription.pump()

    def step_leave(self, line: Line) -> None:
        self.subscription.remove_consumer(self.taken(line))

    def step_stop(self, line: Line) -> None:
        self.subscription.stop()

    def step_rewind(self, line: Line) -> None:
        self.subscription.rewind()

    def step_trim(self, line: Line) -> None:
        """Trim the entries below one; the cursor of a reader goes there."""
        self.stage.log.trimmed = line.number()
        self.subscription.cursor.skip_to(Position(LEDGER, self.stage.log.trimmed - 1))

    def step_connection(self, line: Line) -> None:
        """Make the connection of a consumer `full`, `dead` or `open`."""
        connection: Any = self.taken(line).connection
        what = line.word()
        connection.output_below_bound, connection.closed = what != "full", what == "dead"

    async def step_read(self, line: Line) -> None:
        """Let the read of a number arrive, once it has begun; `failed=yes` fails it."""
        number = line.number()
        await until(partial(self._has_begun, number))
        held = self.stage.log.reads[number]
        if line.option("failed", "no") == "yes":
            held.error = ManagedLedgerReadError("bookie gone")
        held.arrived.set()
        await trio.testing.wait_all_tasks_blocked()

    def _has_begun(self, number: int) -> bool:
        return len(self.stage.log.reads) > number

    async def step_begun(self, line: Line) -> str:
        """Wait until the read of a number has begun; return its first entry, and whether it is one of a replay."""
        number = line.number()
        await until(partial(self._has_begun, number))
        held = self.stage.log.reads[number]
        return f"{held.first}{' again' if held.replay else ''}"

    async def step_read_all(self, line: Line) -> None:
        """Let all reads arrive."""
        for _ in range(20):
            await trio.testing.wait_all_tasks_blocked()
            for held in self.stage.log.reads:
                held.arrived.set()

    async def step_sleep(self, line: Line) -> None:
        await trio.sleep(float(line.word()))

    async def step_settled(self, line: Line) -> str:
        """Return the number of tasks of the subscription that go on."""
        await trio.testing.wait_all_tasks_blocked()
        return str(len(self.subscription.topic.nursery.child_tasks))

    def step_state(self, line: Line) -> str:
        """Return a number of the subscription, or of one consumer."""
        what = line.word()
        if line.words:
            consumer = self.taken(line)
            if what == "blocked":
                return "yes" if consumer.blocked else "no"
            return str(
                {"permits": self.subscription.permits_of, "unacked": self.subscription.unacked_of}[what](consumer)
            )
        state = {
            "unacked": lambda: self.subscription._unacked,
            "backlog": lambda: self.subscription.cursor.backlog(),
            "next": lambda: self.subscription.cursor.read_position.entry_id,
            "again": lambda: len(self.subscription._replay),
            "cached": lambda: self.stage.log.cached,
            "active": lambda: "yes" if self.subscription.cursor.active else "no",
            "hungry": lambda: "yes" if self.subscription.hungry else "no",
            "dropped": lambda: len(self.stage.dropped),
        }
        return str(state[what]())

    def step_at_most(self, line: Line) -> None:
        """Compare a number of the subscription with a bound."""
        bound = line.number()
        found = self.step_state(line)
        assert int(found) <= bound, found


async def play(story: Story) -> None:
    """Play a story; StoryError of the first step that fails."""
    line = story.steps[0].line
    assert line.name == "on", story.steps[0].text
    kind: Any = pb.CommandSubscribe.SubType.Value(line.word())
    cold = line.words == ["cold"]
    options: dict[str, Any] = {name: int(value) for name, value in line.options.items()}
    async with on_stage(kind, cold=cold, **options) as stage:
        player = StagePlayer(stage)
        for step in story.steps[1:]:
            try:
                await _one(player, step)
            except Exception as error:
                raise StoryError(f"{step.where}: {step.text}: {type(error).__name__}: {error}") from error


async def _one(player: StagePlayer, step: Step) -> None:
    line = step.line
    verb = getattr(player, f"step_{line.name.replace('-', '_')}", None)
    if verb is None:
        raise line.unknown()
    answer = verb(line)
    if hasattr(answer, "__await__"):
        answer = await answer
    line.check_used()
    assert (answer is None) == (not step.expected), f"the answer is {answer}"
    assert answer is None or answer in step.expected, f"the answer is {answer}"
