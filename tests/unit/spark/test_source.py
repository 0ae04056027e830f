"""The contracts of the classes that Spark calls, without Spark: types, pickling, order of calls, limits, errors."""

from __future__ import annotations

import inspect
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.datasource_internal import ReadLimitRegistry
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from quire.client.errors import ServiceUnavailableError
from quire.spark.errors import DataLossError, OptionError, SparkSourceError
from quire.spark.limits import Limits
from quire.spark.offsets import Offsets, Place
from quire.spark.plain_errors import plain_errors
from quire.spark.planning import planner as planner_module
from quire.spark.planning.logs import LedgerRange
from quire.spark.planning.ranges import TopicRange
from quire.spark.readers import QuireReader, QuireStreamReader, RangePartition
from quire.spark.reading import scan as scan_module
from quire.spark.reading.schema import SCHEMA
from quire.spark.source import QuireDataSource
from quire.spark.trace import read_trace
from tests.support.refusals import refuses
from tests.unit.spark.struct import struct

TOPIC = "persistent://public/default/x"
START, END = Offsets({TOPIC: Place(1, 0)}), Offsets({TOPIC: Place(1, 5)})
WORK = TopicRange(partition=TOPIC, ranges=(LedgerRange(1, 0, 4),))


class FakePlanner:
    """A planner that records its calls. It is created at the first call, in the process that plans."""

    made = 0

    def __init__(self, _options: object, **_: object) -> None:
        FakePlanner.made += 1
        self.calls: list[tuple[Any, ...]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a planner has connections and does not travel")

    def initial(self) -> Offsets:
        return START

    def prepare_available_now(self) -> Offsets:
        return END

    def latest(self, start: Offsets, limits: Limits) -> Offsets:
        self.calls.append(("latest", start, limits))
        return END

    def report(self) -> dict[str, object]:
        return {**END.to_json_dict(), "behind": 5}

    def plan(self, start: Offsets, end: Offsets) -> list[TopicRange]:
        self.calls.append(("plan", start, end))
        return [WORK] if start != end else []

    def batch(self) -> list[TopicRange]:
        return []

    def commit(self, end: Offsets) -> None:
        self.calls.append(("commit", end))

    def close(self) -> None:
        self.calls.append(("close",))


@pytest.fixture(autouse=True)
def fake_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    FakePlanner.made = 0
    monkeypatch.setattr(planner_module, "Planner", FakePlanner)


def source(**options: str) -> QuireDataSource:
    return QuireDataSource({"topic": TOPIC, **options})


def stream_reader(**options: str) -> QuireStreamReader:
    made = source(subscription="hold", **options).streamReader(schema=struct("value"))
    assert isinstance(made, QuireStreamReader)
    return made


def calls_of(reader: QuireStreamReader) -> list[tuple[Any, ...]]:
    planner = reader._plan()
    assert isinstance(planner, FakePlanner)
    return planner.calls


def test_spark_finds_what_it_looks_for():
    assert issubclass(QuireDataSource, DataSource)
    assert QuireDataSource.name() == "quire"
    assert source().schema() == SCHEMA
    assert source(columns="value,__entry").schema() == "value BINARY, __entry BIGINT"
    reader = source().reader(schema=struct("value"))
    assert isinstance(reader, DataSourceReader)
    assert type(reader).pushFilters is DataSourceReader.pushFilters, (
        "one that overrides it fails where push-down is off"
    )
    streaming = stream_reader()
    assert isinstance(streaming, DataSourceStreamReader)
    assert isinstance(streaming, SupportsTriggerAvailableNow)
    assert len(inspect.signature(streaming.latestOffset).parameters) == 2, "how Spark tells that limits are known"


def test_a_wrong_option_or_schema_is_refused_before_anything_is_planned():
    refuses(OptionError, lambda: QuireDataSource({"topick": TOPIC}).reader(schema=struct("value")), "topick")
    refuses(OptionError, lambda: source(columns="key").schema(), "no column 'key'")
    assert FakePlanner.made == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option 'subscription'"),
        ({"subscription": "s", "endingOffsets": "latest"}, "option 'endingOffsets' is 'latest'"),
        ({"subscription": "s", "topick": "x"}, "option 'topick' is 'x'"),
        ({"subscription": "s", "maxBytesPerTrigger": "many"}, "option 'maxBytesPerTrigger' is 'many'"),
    ],
)
def test_a_wrong_option_of_a_stream_is_raised_by_the_readers_first_call_and_not_hidden(options, said):
    reader = source(**options).streamReader(schema=struct("value"))
    assert len(inspect.signature(reader.latestOffset).parameters) == 2, "Spark looks at it before the first call"
    reader = pickle.loads(pickle.dumps(reader))
    calls = [
        reader.prepareForTriggerAvailableNow,
        reader.getDefaultReadLimit,
        reader.initialOffset,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(InputPartition(0)),
    ]
    for call in calls:
        with pytest.raises(OptionError, match=said):
            call()
    reader.stop()
    assert FakePlanner.made == 0


def test_readers_travel_before_and_after_they_planned():
    for dump in (pickle.dumps, cloudpickle.dumps):
        batch = pickle.loads(dump(source(columns="value").reader(schema=struct("value"))))
        assert isinstance(batch, QuireReader)
        reader = stream_reader()
        reader.initialOffset()
        copy = pickle.loads(dump(reader))
        assert isinstance(copy, QuireStreamReader)
        assert copy._planner is None
        assert pickle.loads(dump(RangePartition(WORK))).work == WORK
        assert isinstance(pickle.loads(dump(source())), QuireDataSource)


def test_nothing_is_made_before_the_first_call_and_one_planner_serves_all():
    reader = stream_reader()
    reader.getDefaultReadLimit()
    assert FakePlanner.made == 0
    reader.prepareForTriggerAvailableNow()
    assert reader.initialOffset() == reader.initialOffset() == START.to_json_dict()
    end = reader.latestOffset(START.to_json_dict(), ReadAllAvailable())
    reader.partitions(START.to_json_dict(), end)
    reader.commit(end)
    assert FakePlanner.made == 1
    reader.stop()
    assert ("close",) not in calls_of(reader), "stop releases nothing"


def test_offsets_are_canonical_text():
    reader = stream_reader()
    end = reader.latestOffset(START.to_json_dict(), ReadAllAvailable())
    assert json.dumps(end) == END.text() == f'{{"v": 1, "p": {{"{TOPIC}": [1, 5]}}}}'


@pytest.mark.parametrize(
    ("options", "limit", "limits"),
    [
        ({}, ReadAllAvailable(), Limits()),
        ({"maxMessagesPerTrigger": "7"}, ReadMaxRows(7), Limits(messages_max=7)),
        ({"maxBytesPerTrigger": "2k"}, ReadMaxBytes(2048), Limits(bytes_max=2048)),
        (
            {"maxMessagesPerTrigger": "7", "maxBytesPerTrigger": "2k"},
            ReadMaxRows(7),
            Limits(messages_max=7, bytes_max=2048),
        ),
    ],
)
def test_limits_go_to_spark_and_come_back(options: dict[str, str], limit: object, limits: Limits):
    reader = stream_reader(**options)
    mine = reader.getDefaultReadLimit()
    assert mine == limit
    # as received by the planner's process
    carried = ReadLimitRegistry().get({"_type": type(mine).__name__, **vars(mine)})
    reader.latestOffset(START.to_json_dict(), carried)
    assert calls_of(reader) == [("latest", START, limits)]
    reader.latestOffset(START.to_json_dict(), ReadAllAvailable())
    assert calls_of(reader)[-1] == ("latest", START, Limits()), "what Spark wants without a limit has none"


def test_the_report_is_json_with_the_entries_behind():
    assert json.loads(json.dumps(stream_reader().reportLatestOffset())) == {"v": 1, "p": {TOPIC: [1, 5]}, "behind": 5}


def test_partitions_are_lists_of_partitions_and_none_is_fine():
    (partition,) = stream_reader().partitions(START.to_json_dict(), END.to_json_dict())
    assert isinstance(partition, InputPartition)
    assert partition.work == WORK
    assert stream_reader().partitions(END.to_json_dict(), END.to_json_dict()) == []
    assert source().reader(schema=struct("value")).partitions() == []


def test_the_empty_partition_that_spark_makes_of_none_has_no_rows():
    for reader in (source().reader(schema=struct("value")), stream_reader()):
        found = reader.read(InputPartition(None))
        assert isinstance(found, Iterator)
        assert list(found) == []


def test_rows_come_as_an_iterator_of_record_batches_and_are_traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    trace = tmp_path / "trace.jsonl"
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
    monkeypatch.setattr(scan_module, "read_range", lambda *_: iter([batch]))
    reader = source(trace=str(trace)).reader(schema=struct("value"))
    found = reader.read(RangePartition(WORK))
    assert isinstance(found, Iterator)
    assert read_trace(str(trace)) == [], "nothing is read before it is asked for"
    assert list(found) == [batch]
    assert [(event["event"], event.get("rows")) for event in read_trace(str(trace))] == [
        ("read", None),
        ("read-done", 2),
    ]


def test_in_a_worker_of_sparks_our_errors_are_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(DataLossError), plain_errors():
        raise DataLossError("gone")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ, "the user's own process is left alone"
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "s")
    with pytest.raises(ZeroDivisionError), plain_errors():
        raise ZeroDivisionError
    assert "SPARK_HIDE_TRACEBACK" not in os.environ, "a mistake of ours keeps its stack"
    with pytest.raises(SparkSourceError, match="ServiceUnavailableError: the broker is away"), plain_errors():
        raise ServiceUnavailableError("the broker is away")
    assert os.environ.pop("SPARK_HIDE_TRACEBACK") == "1"
