from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.spark.errors import OptionError
from quire.spark.offsets import EARLIEST, EARLIEST_MARK, LATEST, LATEST_MARK, Boundary, Offsets, Place
from quire.spark.planning.logs import LostEntries, PartitionLog
from quire.spark.planning.ranges import canonical, next_end, ranges, resolve, topic_range
from quire.spark.reading.range_check import shown
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues
from tests.unit.spark.logs_of_brokers import SIZE, Broker, log_from, log_of, pair

TOPIC = "persistent://public/default/x"
A, B, C = (f"{TOPIC}-partition-{index}" for index in range(3))
NAMES = {"a": A, "b": B, "c": C, "x": TOPIC}
"""Names in the text; x is the topic itself."""
TESTDATA = Path(__file__).parent / "testdata"


def logs_of(**entries: int) -> dict[str, PartitionLog]:
    """Return logs that each have one open ledger, number 5."""
    return {NAMES[key]: log_of((5, n)) for key, n in entries.items()}


def at(**entries: int) -> Offsets:
    return Offsets({NAMES[key]: Place(5, n) for key, n in entries.items()})


def brief(text: object) -> str:
    """Return a text with the short names of the partitions."""
    found = str(text)
    for short, name in NAMES.items():
        found = found.replace(name, short)
    return found


def told(offsets: Mapping[str, Place]) -> str:
    return brief(" ".join(f"{name}={place}" for name, place in offsets.items()))


def told_loss(lost: LostEntries | None) -> str:
    if lost is None:
        return ""
    assert "With the option failOnDataLoss=false" in str(lost)
    return f"; lost {lost.start} to {lost.end}, {lost.entries} entries, {lost.reason}"


def place_of(text: str) -> Place | int:
    return {"earliest": EARLIEST_MARK, "latest": LATEST_MARK}.get(text) or Place.parse(text)


def named(step: Line, suffix: str = "") -> dict[str, str]:
    """Take the options that are names of partitions, with this suffix."""
    return {NAMES[key]: step.option(key + suffix) for key in NAMES if key + suffix in step.options}


@pytest.mark.parametrize("dialogue", dialogues(TESTDATA / "ranges.txt"))
def test_ranges(dialogue: Dialogue) -> None:
    """`logs a=5:100 b=2:10,3:0` has partitions with their ledgers; ranges and tasks are of the first one."""
    logs = {name: log_from(text) for name, text in named(dialogue.command).items()}
    first = next(iter(logs.values()))

    def answer(step: Line) -> str:
        match step.name:
            case "next":
                start = Offsets({name: Place.parse(text) for name, text in named(step).items()})
                target = Offsets({name: Place.parse(text) for name, text in named(step, "-to").items()})
                rate = step.option("rate", "")
                messages, size = (step.option_number(name, 0) or None for name in ("messages", "bytes"))
                end = next_end(
                    logs,
                    start,
                    messages_max=messages,
                    bytes_max=size,
                    per_entry={A: float(rate)} if rate else {},
                    target=target or None,
                )
                return "nothing new" if end is start else told(end)
            case "earliest":
                return told(resolve("startingOffsets", EARLIEST, logs))
            case "latest":
                return told(resolve("startingOffsets", LATEST, logs))
            case "time":
                times = {name: Place.parse(text) for name, text in named(step).items()}
                return told(resolve("startingTimestamp", Boundary(kind="timestamp", timestamp_ms=7), logs, times))
            case "places":
                given = tuple((name, place_of(text)) for name, text in named(step).items())
                found = resolve("startingOffsets", Boundary(kind="places", places=given), logs)
                gone = [log.missing_before(found[name]) for name, log in logs.items()]
                return told(found) + ("; deleted" if any(gone) else "")
            case "range":
                seen, held = step.option("seen", ""), step.option("held", "")
                parts, lost = ranges(
                    first,
                    Place.parse(step.word()),
                    Place.parse(step.word()),
                    mark_delete=pair(held) if held else None,
                    seen=log_from(seen) if seen else None,
                )
                return (shown(parts) if parts else "no entries") + told_loss(lost)
            case "task":
                earlier = step.option_number("earlier", 0)
                task, lost = topic_range(first, Place.parse(step.word()), Place.parse(step.word()), earlier_max=earlier)
                if task is None:
                    return "no task" + told_loss(lost)
                back = f", looks back at {shown(task.earlier)}" if task.earlier else ""
                return f"from message {task.start_batch_index} of {shown(task.ranges)}{back}{told_loss(lost)}"
        raise step.unknown()

    def short(step: Line) -> str:
        try:
            return brief(answer(step))
        except OptionError as error:
            return f"refused: {brief(error)}"

    dialogue.check(short)


def test_canonical_is_that_of_the_log() -> None:
    assert canonical(log_of((2, 10), (3, 10)), Place(3, 0)) == Place(2, 10)


def test_no_partition_starves_under_a_limit_of_one_message() -> None:
    start = at(a=0, b=0, c=0)
    for _ in range(100):
        start = next_end(logs_of(a=1000, b=1000, c=1000), start, messages_max=1)
    assert sum(place.entry_id for place in start.values()) == 100
    assert min(place.entry_id for place in start.values()) >= 10


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=3),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 60 * SIZE),
    st.floats(0.5, 20),
)
def test_triggers_end_at_the_target_with_every_entry_taken_once(
    partitions: list[tuple[int, int]], messages_max: int | None, bytes_max: int | None, rate: float
) -> None:
    names = (A, B, C)
    logs = {name: log_of((5, one), (8, other)) for name, (one, other) in zip(names, partitions, strict=False)}
    target = Offsets({name: log.end() for name, log in logs.items()})
    start, taken = Offsets(), Counter[tuple[str, int, int]]()
    while True:
        end = next_end(
            logs,
            start,
            messages_max=messages_max,
            bytes_max=bytes_max,
            per_entry=dict.fromkeys(names, rate),
            target=target,
        )
        if end is start:
            break
        entries = 0
        for name, place in end.items():
            begin = start.get(name, logs[name].earliest())
            assert begin <= place <= logs[name].end()
            found, lost = ranges(logs[name], begin, place)
            assert lost is None
            taken.update((name, part.ledger_id, n) for part in found for n in range(part.first, part.last + 1))
            entries += sum(part.entries for part in found)
        assert entries
        assert entries == 1 or messages_max is None or entries * rate <= messages_max + 1e-3
        assert entries == 1 or bytes_max is None or entries * SIZE <= bytes_max
        start = end
    everything = [
        (name, each.ledger_id, n) for name, log in logs.items() for each in log.ledgers for n in range(each.entries)
    ]
    assert taken == Counter(everything)


# The life of a stream

OPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["roll", "restart", "trigger", "commit", "again"]), st.just(0)),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(OPS, st.none() | st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_a_held_stream_reads_every_entry_once_while_the_log_rolls_and_is_trimmed(
    ops: list[tuple[str, int]], messages_max: int | None, behind: int, from_latest: bool
) -> None:
    broker = Broker()
    for name, count in ops[:5]:
        if name == "append":
            broker.append(count)
    log = broker.log()
    start = Offsets({A: log.end() if from_latest else log.earliest()})
    broker.mark_delete = log.mark_delete_for(log.hold_at(start[A], behind))
    wanted = [] if from_latest else [(each.ledger_id, n) for each in log.ledgers for n in range(each.entries)]
    read: list[tuple[int, int]] = []
    committed = start

    def trigger(start: Offsets) -> Offsets:
        log = broker.log()
        assert log.missing_before(start[A], mark_delete=broker.mark_delete) is None
        end = next_end({A: log}, start, messages_max=messages_max)
        assert (end is start) == (len(read) == len(wanted))
        assert (end.text() == start.text()) == (end is start)
        assert log.canonical(end[A]) == end[A] or end is start
        found, lost = ranges(log, start[A], end[A], mark_delete=broker.mark_delete)
        assert lost is None
        read.extend((part.ledger_id, n) for part in found for n in range(part.first, part.last + 1))
        return end

    for name, count in ops[5:]:
        if name == "append":
            wanted.extend(broker.append(count))
        elif name == "roll":
            broker.roll()
        elif name == "restart":
            broker.restart()
        elif name == "trigger":
            committed, start = start, trigger(start)
        elif name == "commit":  # behind the checkpoint, by one trigger
            log = broker.log()
            broker.acknowledge(log.mark_delete_for(log.hold_at(committed[A], behind)))
        else:  # started again with an unfinished batch: it is read again, the same
            log = broker.log()
            found, lost = ranges(log, committed[A], start[A], mark_delete=broker.mark_delete)
            again = [(part.ledger_id, n) for part in found for n in range(part.first, part.last + 1)]
            assert lost is None
            assert again == read[len(read) - len(again) :]
    while (end := trigger(start)) is not start:
        start = end
    assert read == wanted


@given(st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_a_stream_that_nothing_holds_is_told_when_what_it_has_not_read_is_trimmed(
    read: int, unread: int, restart: bool
) -> None:
    broker = Broker()
    broker.append(read)
    start = broker.log().end()
    last = broker.append(unread)[-1]
    broker.acknowledge(last)
    broker.roll()
    if restart:
        broker.restart()
    broker.append(1)
    lost = broker.log().missing_before(start)
    assert lost is not None
    assert lost.start == start
