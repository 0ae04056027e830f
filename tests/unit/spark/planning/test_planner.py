"""Decisions of the driver side and the order of its requests: offsets, the hold, restarts, missing entries."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from quire.client.errors import ServiceUnavailableError
from quire.client.message_id import MessageId
from quire.client.packing import pack
from quire.spark import cluster as cluster_module
from quire.spark.admin import Admin, TopicMissingError
from quire.spark.errors import DataLossError, OptionError, SourceUnavailableError
from quire.spark.limits import Limits
from quire.spark.offsets import Offsets, Place
from quire.spark.options.parse import Options
from quire.spark.planning.planner import Planner
from quire.spark.planning.ranges import TopicRange
from quire.spark.reading.range_check import shown
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues
from tests.unit.spark.fake_cluster import FakeTopics
from tests.unit.spark.logs_of_brokers import pair

PUBLIC = "persistent://public/default/"
TOPIC = f"{PUBLIC}x"
FAILURES = {"broker": ServiceUnavailableError("the broker is away"), "us": ZeroDivisionError("a mistake of ours")}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeTopics:
    made = FakeTopics()
    made.add(TOPIC, (3, 10), (5, 4))
    monkeypatch.setattr(cluster_module, "runtime", made)
    return made


class Driver:
    """A planner of topic x, and what it was asked last. `planner` makes another one, as a restart does."""

    def __init__(self, cluster: FakeTopics, caplog: pytest.LogCaptureFixture) -> None:
        self.cluster = cluster
        self.caplog = caplog
        self.start = self.end = Offsets()
        self.planner = self.make({})

    def make(self, options: dict[str, str]) -> Planner:
        self.now = 0.0

        use = options.pop("use", "stream")
        asked = {"topic": TOPIC, **options, "topicsRefreshMs": "0"}
        if "topicsPattern" in options:
            del asked["topic"]
        if use == "stream":
            if not {"startingTimestamp", "startingOffsetsByTimestamp"} & asked.keys():
                asked.setdefault("startingOffsets", "earliest")
            if "hold" not in asked:
                asked.setdefault("subscription", "hold")
            parsed = Options.parse(asked, use="stream")
            return Planner(parsed, admin=cast(Admin, self.cluster), clock=lambda: self.now)
        return Planner(Options.parse(asked, use="batch"), admin=cast(Admin, self.cluster))

    def offsets(self, step: Line) -> Offsets:
        """Take the places of x, or `start` or `end` for what was answered last."""
        match step.word():
            case "start":
                return self.start
            case "end":
                return self.end
            case text:
                return Offsets({TOPIC: Place.parse(text)})

    def answer(self, step: Line) -> str:
        """Do a step; return what is seen of it, with the names of topics without their namespace."""
        try:
            done = self.ask(step)
            return (self.change(step) if done is None else done).replace(PUBLIC, "")
        except (DataLossError, OptionError, SourceUnavailableError, TopicMissingError) as error:
            return f"{type(error).__name__}: {error}".replace(PUBLIC, "")

    def ask(self, step: Line) -> str | None:
        """Ask the planner; return None for a step that is not for it."""
        match step.name:
            case "planner":
                options, step.options = dict(step.options), {}
                self.planner = self.make(options)
                return ""
            case "initial":
                found = self.planner.initial()
                same, self.start = found is self.start, found
                return told(found) + (", not asked for again" if same else "")
            case "latest":
                messages, least = (step.option_number(name, 0) or None for name in ("messages", "least"))
                start = self.offsets(step)
                self.end = self.planner.latest(start, Limits(messages_max=messages, messages_min=least))
                return "nothing new" if self.end.text() == start.text() else told(self.end)
            case "plan":
                return tasks(self.planner.plan(self.offsets(step), self.offsets(step)))
            case "batch":
                return tasks(self.planner.batch(step.option_number("bytes", 0) or None))
            case "commit":
                self.planner.commit(self.offsets(step))
            case "prepare":
                self.planner.prepare_available_now()
            case "report":
                return str(self.planner.report())
            case "close":
                self.planner.close()
            case _:
                return None
        return ""

    def change(self, step: Line) -> str:
        """Change the cluster, or look at it."""
        cluster = self.cluster
        match step.name:
            case "calls":
                kinds, step.words = step.words, []
                return "; ".join(" ".join(map(call, each)) for each in cluster.calls if not kinds or each[0] in kinds)
            case "marks":
                return " ".join(f"{name}={call(mark)}" for (_, name), mark in cluster.marks.items()) or "none"
            case "mark":
                name = step.word()
                cluster.marks[TOPIC, name] = pair(step.word())
            case "trim":
                cluster.trim(TOPIC)
            case "trim-at-create":
                once = "once" in step.words and step.word()

                def trim(topic: str) -> None:
                    if once:
                        cluster.on_create = lambda _topic: None
                    cluster.trim(topic)

                cluster.on_create = trim
            case "grow":
                cluster.grow(TOPIC, step.number())
            case "roll":
                cluster.roll(TOPIC, step.number())
            case "add":
                topic, ledgers = step.word(), step.word()
                cluster.add(f"{PUBLIC}{topic}", *(pair(each) for each in ledgers.split(",")))
            case "partitions":
                cluster.partition_counts[TOPIC] = step.number()
            case "unknown":
                cluster.unknown.add(f"{PUBLIC}{step.word()}")
            case "delete":
                del cluster.logs[f"{PUBLIC}{step.word()}"]
            case "time":
                epoch_ms = step.number()
                cluster.times[epoch_ms] = MessageId(*pair(step.word()))
            case "busy":
                cluster.busy.add(TOPIC)
            case "fail":
                cluster.failing = FAILURES.get(step.word())
            case "wait":
                self.now += step.number()
            case "batches":
                (packed,) = pack([b"v"] * step.number())
                cluster.entry = packed.encode("p", 0, 1)
            case "silent":
                cluster.is_silent = not cluster.is_silent
            case "warnings":
                return " / ".join(record.getMessage() for record in self.caplog.records) or "none"
            case _:
                raise step.unknown()
        return ""


def call(part: Any) -> str:
    return "{}:{}".format(*part) if isinstance(part, tuple) else str(part)


def told(offsets: Offsets) -> str:
    return " ".join(str(place) if name == TOPIC else f"{name}={place}" for name, place in offsets.items())


def tasks(found: Sequence[TopicRange]) -> str:
    return (
        " / ".join(shown(task.ranges) + (f" after {shown(task.earlier)}" if task.earlier else "") for task in found)
        or "no tasks"
    )


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "planner.txt"))
def test_a_planner(dialogue: Dialogue, cluster: FakeTopics, caplog: pytest.LogCaptureFixture) -> None:
    """Topic x has 10 entries in ledger 3 and 4 in ledger 5, which is open."""
    driver = Driver(cluster, caplog)
    options, dialogue.command.options = dialogue.command.options, {}
    driver.planner = driver.make(options)
    with caplog.at_level(logging.WARNING):
        dialogue.check(driver.answer)


def test_a_broker_whose_answer_does_not_fit_together_is_asked_again(
    cluster: FakeTopics, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    cluster.logs[TOPIC][0][1] = 0  # a ledger shown empty in the middle: it rolls just now
    original = cluster.many_internal_stats

    def answer(topics: list[str]) -> list[Any]:
        found = original(topics)
        cluster.logs[TOPIC][0][1] = 10
        return found

    monkeypatch.setattr(cluster, "many_internal_stats", answer)
    assert Driver(cluster, caplog).make({"hold": "none"}).initial() == Offsets({TOPIC: Place(3, 0)})
