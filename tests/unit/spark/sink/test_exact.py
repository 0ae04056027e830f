"""quire/spark/sink/exact.py, promise.py and attempts.py, without Spark's session and without a broker"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from quire.client.deduplicated.sequenced import Numbered
from quire.client.packing import Packed
from quire.spark.admin import AdminRefusedError
from quire.spark.errors import OptionError, SinkError
from quire.spark.options.parse import VERSION_MAX, Options
from quire.spark.sink.attempts import Attempt, TaskIdentity, check_settings, pending_since
from quire.spark.sink.columns import SinkColumns
from quire.spark.sink.exact import ExactTaskWriter
from quire.spark.sink.input_end import input_ended
from quire.spark.sink.promise import INACTIVITY, Promise, check_age, check_topic
from quire.spark.sink.sequences import BATCH_MAX, split_id
from quire.spark.sink.writing import QuireStreamWriter, QuireWriter
from quire.spark.values.encoding import Encoding
from quire.wire.pulsar.metadata import read_metadata
from tests.support.refusals import refuses

T = "persistent://public/default/t"
MINUTE_MS = 60_000
STREAMING = Attempt("1b2c", 5, 3, 99)


class FakeTopic:
    """Partitions with deduplication, over several attempts."""

    def __init__(self, partitions: int = 0) -> None:
        self.count = partitions
        self.names: list[str] = []
        self.calls: list[str] = []
        self.stored: dict[str, list[Numbered]] = {}
        self.dropped = 0
        self.die_after = 1 << 30
        """Entries after which the attempt dies."""

    def open(self, options: Options, name: str) -> FakeTopic:
        self.names.append(name)
        return self

    def partitions(self, topics: Sequence[str]) -> list[int]:
        return [self.count] * len(topics)

    def schema_version(self, target: str) -> bytes:
        return b"\0" * 7 + b"\3"

    def last_id(self, target: str) -> int:
        self.calls.append("open")
        return self.stored[target][-1].highest_id if self.stored.get(target) else -1

    def send(self, runs: Sequence[tuple[str, Sequence[Packed]]]) -> None:
        self.calls.append("send")
        for target, packed in runs:
            for entry in cast(Sequence[Numbered], packed):
                if self.die_after <= 0:
                    raise SinkError("the attempt dies")
                self.die_after -= 1
                last = self.stored[target][-1].highest_id if self.stored.get(target) else -1
                if entry.lowest_id > last:
                    self.stored.setdefault(target, []).append(entry)
                else:
                    self.dropped += entry.count

    def flush(self) -> None: ...

    def close(self) -> None: ...

    @property
    def messages(self) -> int:
        return sum(entry.count for entries in self.stored.values() for entry in entries)


class FakeChecks:
    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.closed = False
        self._failure = failure

    def check(self, topic: str) -> None:
        self.asked.append(topic)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self.closed = True


def batches(count: int, size: int) -> list[pa.RecordBatch]:
    """Return rows with 13 keys in batches of a size."""
    keys = pa.array([f"k{number % 13}" for number in range(count)])
    values = pa.array([b"%d" % number for number in range(count)], pa.binary())
    made: list[pa.RecordBatch] = pa.table({"__key": keys, "value": values}).to_batches(max_chunksize=size)
    return made


def attempt(
    topic: FakeTopic,
    rows: list[pa.RecordBatch],
    checks: FakeChecks | None = None,
    ended: bool | None = True,
    **options: str,
) -> int:
    parsed = Options.parse({"topic": "t", "exactlyOnce": "true", **options}, use="write")
    identity = TaskIdentity("query-1b2c", STREAMING.batch_id, STREAMING.partition)
    columns = SinkColumns(value=1, key=0)
    writer = ExactTaskWriter(parsed, columns, STREAMING, identity, checks or FakeChecks(), topic.open, lambda: ended)
    return writer.write(iter(rows)).rows


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("sort", ["false", "true"])
@pytest.mark.parametrize("die_after", [1, 5, 11])
def test_attempts_that_die_anywhere_write_each_row_once_together(partitions: int, sort: str, die_after: int):
    topic = FakeTopic(partitions)
    topic.die_after = die_after
    refuses(SinkError, lambda: attempt(topic, batches(9000, 1000), sortRows=sort), "the attempt dies")
    assert 0 < topic.messages < 9000
    topic.die_after = 1 << 30
    assert attempt(topic, batches(9000, 777), sortRows=sort, compression="zstd") == 9000
    assert topic.messages == 9000
    assert topic.dropped > 0
    assert len(set(topic.names)) == 1
    assert {split_id(each.lowest_id)[0] for entries in topic.stored.values() for each in entries} == {5}


def test_rows_of_a_key_keep_their_order():
    topic = FakeTopic()
    attempt(topic, batches(9000, 1000), batching="false")
    numbers = [int(entry.payload) for entry in topic.stored[T]]
    for key in range(13):
        of_key = [number for number in numbers if number % 13 == key]
        assert of_key == list(range(key, 9000, 13))


def test_consecutive_rows_of_a_key_share_an_entry_and_all_rows_keep_their_order():
    keys = pa.array(["a", "a", "b", "a", None, None])
    values = pa.array([b"%d" % number for number in range(6)], pa.binary())
    topic = FakeTopic()
    attempt(topic, pa.table({"__key": keys, "value": values}).to_batches())
    assert [entry.count for entry in topic.stored[T]] == [2, 1, 1, 2]


@pytest.mark.parametrize("stop", [1, 4095, 4096, 5000])
def test_rows_that_end_early_fail_the_attempt_and_the_next_one_writes_the_rest(stop: int):
    rows = batches(9000, 1000)
    part = pa.Table.from_batches(rows).slice(0, stop).to_batches()
    topic = FakeTopic()
    refuses(SinkError, lambda: attempt(topic, part, ended=False), "the rows ended early")
    attempt(topic, rows)
    assert topic.messages == 9000
    assert topic.dropped == stop
    topic = FakeTopic()
    refuses(SinkError, lambda: attempt(topic, part, ended=False, sortRows="true"), "the rows ended early")
    assert topic.messages == 0, "sorted rows of a part are no part of the sorted rows"
    refuses(SinkError, lambda: attempt(topic, rows, ended=None, sortRows="true"), "does not show if it has them")
    assert input_ended() is None


def test_a_topic_is_checked_once_and_before_its_first_row():
    topic, checks = FakeTopic(3), FakeChecks()
    attempt(topic, batches(9000, 1000), checks)
    assert checks.asked == [T]
    assert checks.closed
    topic, checks = FakeTopic(), FakeChecks(SinkError("off"))
    refuses(SinkError, lambda: attempt(topic, batches(10, 10), checks), "off")
    assert topic.calls == ["open"]
    assert checks.closed
    topic = FakeTopic()
    assert attempt(topic, []) == 0
    assert topic.names == [], "a task without rows opens nothing"


def test_names_are_the_same_for_all_attempts_and_differ_between_tasks_and_writers():
    first = TaskIdentity("query-a", 1, 0)
    assert first.producer_name() == TaskIdentity("query-a", 2, 0).producer_name() == "quire-spark-query-a-0"
    others = (TaskIdentity("query-a", 1, 1), TaskIdentity("query-b", 1, 0), TaskIdentity("application-a", 1, 0))
    assert len({each.producer_name() for each in (first, *others)}) == 4


SCHEMA = StructType([StructField("value", StringType())])


def test_a_batch_write_is_named_by_its_application_and_else_by_itself():
    def name(**options: str) -> str:
        return QuireWriter({"topic": "t", "exactlyOnce": "true", **options}, SCHEMA, False)._writer

    assert name(txnAppId="orders", txnVersion="1") == name(txnAppId="orders", txnVersion="2") == "application-orders"
    assert name() != name()
    with pytest.raises(OptionError, match="it is for batch writes"):
        QuireStreamWriter(
            {"topic": "t", "exactlyOnce": "true", "txnAppId": "a", "txnVersion": "1"}, SCHEMA, overwrite=False
        )


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"sortRows": "true"}, "'sortRows' is 'true': it is for exactlyOnce=true"),
        ({"txnAppId": "a", "txnVersion": "1"}, "'txnAppId' is 'a': it is for exactlyOnce=true"),
        ({"exactlyOnce": "true", "txnAppId": "a"}, "'txnVersion': txnAppId and txnVersion name a write together"),
        ({"exactlyOnce": "true", "txnVersion": "1"}, "'txnAppId': txnAppId and txnVersion name a write together"),
        ({"exactlyOnce": "true", "txnAppId": " ", "txnVersion": "1"}, "give a name of 1 to 200 characters"),
        ({"exactlyOnce": "true", "txnAppId": "a", "txnVersion": str(1 << 28)}, "a whole number from 0 to 268435455"),
        ({"kafka.enable.idempotence": "true"}, "give exactlyOnce=true"),
        ({"kafka.transactional.id": "x"}, "txnAppId and txnVersion"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, str], refusal: str):
    refuses(OptionError, lambda: Options.parse({"topic": "t", **options}, use="write"), refusal)


def test_versions_are_as_large_as_batches_in_an_id():
    assert VERSION_MAX == BATCH_MAX


class FakeLookup:
    def __init__(self, enabled: bool | Exception = True, minutes: str | Exception = "30") -> None:
        self._enabled = enabled
        self._minutes = minutes

    def deduplication(self, topic: str) -> bool:
        if isinstance(self._enabled, Exception):
            raise self._enabled
        return self._enabled

    def runtime_configuration(self) -> dict[str, str]:
        if isinstance(self._minutes, Exception):
            raise self._minutes
        return {INACTIVITY: self._minutes}


def test_a_topic_without_deduplication_or_that_does_not_say_is_refused():
    check_topic(FakeLookup(True), T)
    refuses(SinkError, lambda: check_topic(FakeLookup(False), T), f"which is off for {T}")
    forbidden = FakeLookup(AdminRefusedError("403"))
    refuses(SinkError, lambda: check_topic(forbidden, T), "whether it is on cannot be read: 403")


def test_a_batch_that_is_older_than_the_brokers_memory_is_refused():
    def check(lookup: FakeLookup, minutes: int) -> None:
        check_age(lookup, 0, minutes * MINUTE_MS)

    unreadable = FakeLookup(minutes=AdminRefusedError("403"))
    check(FakeLookup(), 29)
    check(unreadable, 359)
    refuses(SinkError, lambda: check(FakeLookup(), 30), f"begun 30 minutes ago.* for 30 minutes .{INACTIVITY}")
    refuses(SinkError, lambda: check(unreadable, 360), "for 360 minutes")
    refuses(SinkError, lambda: Promise(FakeLookup(), 1).check(T), "minutes ago")
    Promise(FakeLookup(), 0).check(T)


def test_the_age_of_a_batch_is_that_of_its_offsets(tmp_path: Path):
    assert pending_since("") == pending_since(str(tmp_path)) == pending_since("hdfs://a/b") == 0
    (tmp_path / "offsets").mkdir()
    assert pending_since(str(tmp_path)) == 0
    for name, at in (("9", 9), ("10", 10), (".10.crc", 11)):
        (tmp_path / "offsets" / name).touch()
        os.utime(tmp_path / "offsets" / name, (at, at))
    assert pending_since(str(tmp_path)) == pending_since(f"file://{tmp_path}") == 10_000


def test_settings_of_spark_that_break_the_promise_are_refused():
    check_settings(STREAMING)
    refuses(SinkError, lambda: check_settings(Attempt("q", 1, 0, 0, adaptive=True)), "stateless.enabled', 'false'")
    refuses(SinkError, lambda: check_settings(Attempt("", -1, 0, 0)), "use foreachBatch")


@pytest.mark.parametrize("sort", ["false", "true"])
def test_encoded_rows_with_ordering_keys_and_times_are_written_once_by_two_attempts(sort: str):
    topic = FakeTopic(0)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([{"id": number} for number in range(100)], pa.struct([("id", pa.int32())])),
            pa.array([b"o%d" % (number // 7) for number in range(100)]),
            pa.array([number % 10 // 9 * 1763737000123 for number in range(100)]),
        ],
        ["value", "__orderingKey", "__deliverAt"],
    )
    encoding = Encoding.plan("json", StructType([StructField("id", IntegerType())]), "R")
    parsed = Options.parse({"topic": "t", "exactlyOnce": "true", "encode": "json", "sortRows": sort}, use="write")
    identity = TaskIdentity("query-1b2c", STREAMING.batch_id, STREAMING.partition)
    columns = SinkColumns(value=0, ordering_key=1, deliver_at=2)

    def once() -> None:
        writer = ExactTaskWriter(
            parsed, columns, STREAMING, identity, FakeChecks(), topic.open, lambda: True, encoding=encoding
        )
        assert writer.write(iter([rows])).rows == 100

    topic.die_after = 10
    refuses(SinkError, once, "the attempt dies")
    assert 0 < topic.messages < 100
    topic.die_after = 1 << 30
    once()
    assert topic.messages == 100
    versions = {read_metadata(each.encode("p", 0, 1)).schema_version for each in topic.stored[T]}
    assert versions == {b"\0" * 7 + b"\3"}
