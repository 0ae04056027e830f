"""Flags, moments, meters, pictures and workloads of a load: the other files of quire/cli/perf without a broker."""

from __future__ import annotations

import random
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from quire.cli.main import app
from quire.cli.messages.access import FlagsError
from quire.cli.perf.flags import ConsumerFlags, ProducerFlags, TransactionFlags
from quire.cli.perf.histogram import LatencyHistogram
from quire.cli.perf.live import table_of
from quire.cli.perf.meter import LoadMeter, Sample
from quire.cli.perf.pacing import PaceTimer, Schedule
from quire.cli.perf.payloads import Keys, Payloads, from_file, half_random
from quire.cli.perf.picture import draw
from quire.cli.perf.workloads import workload, workloads
from tests.support.refusals import refuses

PREFIX = "persistent://public/default"


@given(st.floats(0.001, 1), st.integers(1, 50), st.lists(st.floats(0, 3), min_size=1, max_size=20))
def test_every_message_is_taken_once_and_none_before_its_moment(
    interval: float, count_max: int, pauses: list[float]
) -> None:
    schedule, now, taken = Schedule(100.0, interval, 200), 100.0, []
    for pause in pauses:
        now += pause
        found = schedule.take(now, count_max)
        assert all(moment <= now for moment in found)
        assert len(found) <= count_max
        taken += found
    assert taken == [100.0 + number * interval for number in range(len(taken))]
    assert schedule.done == (len(taken) == 200)


def test_a_batch_is_due_at_the_end_of_its_window_or_when_it_is_full() -> None:
    schedule = Schedule(10.0, 0.001, 0)
    assert schedule.due(1000, 0.005) == pytest.approx(10.005)
    assert schedule.due(3, 0.005) == pytest.approx(10.002)
    assert schedule.due(1000, 0.0) == 10.0


@pytest.mark.real_clock
async def test_a_timer_is_not_early_and_knows_less_than_a_millisecond() -> None:
    late = []
    with PaceTimer() as timer:
        for _ in range(20):
            moment = time.monotonic() + 0.0003
            await timer.until(moment)
            late.append(time.monotonic() - moment)
    assert min(late) >= 0
    assert min(late) < 0.0005  # (of epoll alone, which rounds up, 0.0007 is the least)


def test_the_topics_and_subscriptions_are_numbered_as_by_the_original() -> None:
    assert ProducerFlags(topics=("a",), num_topics=2).names() == [f"{PREFIX}/a-0", f"{PREFIX}/a-1"]
    assert ProducerFlags(topics=("a", "b"), num_topics=2).names() == [f"{PREFIX}/a", f"{PREFIX}/b"]
    refuses(FlagsError, ProducerFlags(topics=("a", "b"), num_topics=3).names)
    assert ConsumerFlags(topics=("a",), num_subscriptions=2).subscription_names() == ["sub-0", "sub-1"]
    assert ConsumerFlags(topics=("a",), subscriptions=("x,y",), num_subscriptions=2).subscription_names() == ["x", "y"]


@pytest.mark.parametrize(
    "flags",
    [
        ProducerFlags(threads=0),
        ProducerFlags(rate=-1),
        ProducerFlags(compression="rar"),
        ProducerFlags(key_mode="both"),
        ProducerFlags(abort=True),
        ProducerFlags(rate=0, from_schedule=True),
        ProducerFlags(from_schedule=True, expected_interval=True),
        ProducerFlags(delay_range="5,5"),
        ProducerFlags(delay_range="now"),
        ProducerFlags(report_interval=0),
        ConsumerFlags(num_consumers=2),
        ConsumerFlags(receiver_queue_size=0),
        ConsumerFlags(subscriptions=("a", "b")),
        TransactionFlags(txn_disable=True, abort=True),
    ],
)
def test_flags_that_cannot_be_obeyed_are_refused(flags: ProducerFlags | ConsumerFlags | TransactionFlags) -> None:
    refuses(FlagsError, flags.check)


def test_the_defaults_are_accepted_and_those_of_the_original() -> None:
    flags = ProducerFlags(topics=("a",))
    flags.check()
    assert (flags.rate, flags.size, flags.batch_time_window, flags.batch_max_messages) == (100, 1024, 1.0, 1000)
    assert flags.batching
    assert not ProducerFlags(delay=1).batching
    ConsumerFlags(topics=("a",)).check()
    TransactionFlags().check()


def test_an_unknown_flag_is_refused_with_the_nearest() -> None:
    done = CliRunner().invoke(app, ["perf", "produce", "t", "--num-mesages", "3"])
    assert done.exit_code == 2
    assert "--num-messages" in done.output
    assert CliRunner().invoke(app, ["bench", "simple-worklod"]).exit_code == 2


def test_a_picture_must_be_svg_in_a_folder_that_exists(tmp_path: Path) -> None:
    for name in ("x.png", "no/x.svg"):
        done = CliRunner().invoke(app, ["perf", "read", "t", "--picture", str(tmp_path / name)])
        assert done.exit_code == 2, done.output
        assert "--picture" in done.output


def test_a_meter_divides_into_intervals_and_keeps_the_whole() -> None:
    meter = LoadMeter(1_000_000, 0.001)
    for latency in (100, 200):
        meter.messages += 1
        meter.size_bytes += 10
        meter.latencies[latency] += 1
    meter.sample()
    counted, found = meter.end_interval()
    assert (counted.messages, counted.size_bytes, found.total, found.maximum) == (2, 20, 2, 200)
    meter.messages += 1
    meter.latencies[300] += 1
    meter.sample()
    counted, found = meter.end_interval()
    assert (counted.messages, found.total, found.maximum) == (1, 1, 300)
    assert (meter.whole.total, meter.total().messages, len(meter.samples)) == (3, 3, 2)


def test_a_meter_may_count_what_a_stall_kept_from_being_sent() -> None:
    meter = LoadMeter(1_000_000, 0.001)
    meter.expected_interval = 100
    meter.latencies[1000] += 1
    meter.sample()
    assert meter.whole.total == 10


def test_the_picture_is_svg_with_all_lines() -> None:
    whole = LatencyHistogram(1_000_000)
    for value in range(1, 1001):
        whole.record(value)
    samples = [Sample(number / 2, 100.0, 5, 9, 10 + number) for number in range(2000)]
    for text in (draw("a <run>", whole, samples, 0.001), draw("empty", LatencyHistogram(10), [], 1.0)):
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
    root = ElementTree.fromstring(draw("a <run>", whole, samples, 0.001))
    assert len(root.findall("{*}polyline")) == 5
    assert any(each.text == "99.9 %" for each in root.findall("{*}text"))


def test_the_table_has_a_row_for_each_meter() -> None:
    meter = LoadMeter(1_000_000, 0.001)
    meter.messages += 1234
    meter.latencies[2500] += 1
    meter.sample()
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table_of("run", {"produced": meter, "received": LoadMeter(10, 1.0)}))
    console.file.close()
    text = console.export_text()
    assert "1,234" in text
    assert "2.50" in text
    assert "received" in text


def test_all_workloads_are_there_with_their_numbers() -> None:
    assert len(workloads()) == 130
    found = workload("1-topic-16-partitions-1kb.yaml")
    assert (found.topics, found.partitions, found.size, found.rate, found.minutes) == (1, 16, 1024, 50_000, 15)
    assert workload("max-rate-1-topic-1-partition-1p-1c-1kb").rate == 0
    assert workload("backlog-1-topic-1-partition-1kb").backlog_gb == 100
    refuses(FlagsError, lambda: workload("1-topic-16-partitions-1k"), "did you mean 1-topic-16-partitions-1kb")


def test_payloads_and_keys(tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "payloads"
    path.write_text("one\ntwo\n")
    assert from_file(str(path), "\\n") == [b"one", b"two"]
    assert set(Payloads([b"one", b"two"], rng).take(50)) == {b"one", b"two"}
    assert half_random(100, 0.5, rng)[50:] == bytes(50)
    assert (Keys("autoIncrement", rng).take(3), Keys("", rng).take(3)) == (["0", "1", "2"], None)
    path.write_text("\n")
    refuses(FlagsError, lambda: from_file(str(path), "\\n"))
