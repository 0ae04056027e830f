"""Modules and objects in the processes that Spark starts for a query, each of which does a part of the work."""

from __future__ import annotations

import gc
import inspect
import json
import os
import subprocess
import sys

import pyspark.daemon
import pytest

from quire.spark import collector

STEPS = """
import gc, json, os, sys
import pyspark.sql.datasource, pyspark.sql.streaming.datasource, pyspark.worker
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import BinaryType, StructField, StructType
import pyspark_quire

before, steps = set(sys.modules), {}

def step(name):
    steps[name] = sorted(set(sys.modules) - before)

options = {"topic": "t", "subscription": "s"}
schema = StructType([StructField("value", BinaryType())])
source = pyspark_quire.DefaultSource(options)
source.schema()
step("create_data_source")
reader = source.streamReader(schema)
CloudPickleSerializer().dumps(reader)
source.reader(schema)
step("plan_data_source_read")
writing = {"topic": "t", "exactlyOnce": "true"}
pyspark_quire.DefaultSource(writing).streamWriter(schema, False).commit([], 1)
frozen = [gc.get_freeze_count()]
os.environ["SPARK_REUSE_WORKER"] = "1"
pyspark_quire.DefaultSource(writing).streamWriter(schema, False)
frozen.append(gc.get_freeze_count())
step("write_into_data_source")
import quire.spark.reading.columns, quire.spark.reading.scan
step("worker")
print(json.dumps({"steps": steps, "frozen": frozen}))
"""

NOT_LOADED = {
    "create_data_source": ("trio", "ssl", "google", "pyarrow", "quire.client", "quire.spark.sink"),
    "plan_data_source_read": ("trio", "ssl", "google", "pyarrow", "quire.client", "quire.spark.planning"),
    "write_into_data_source": ("trio", "ssl", "google", "pyarrow", "quire.client", "fastavro"),
    "worker": ("httpx2", "fastavro", "quire.ledger", "quire.spark.planning.planner", "quire.spark.sink.task_writer"),
}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, list[str]]]:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    done = subprocess.run(
        [sys.executable, "-c", STEPS], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    return made


@pytest.mark.parametrize("process", NOT_LOADED)
def test_a_process_of_spark_imports_only_what_its_part_needs(process: str, found: dict[str, dict[str, list[str]]]):
    names = NOT_LOADED[process]
    loaded = [
        each for each in found["steps"][process] if each in names or each.startswith(tuple(f"{n}." for n in names))
    ]
    assert loaded == []


def test_a_process_that_is_kept_collects_no_modules_again(found: dict[str, list[int]]):
    once, kept = found["frozen"]
    assert once == 0
    assert kept > 10_000


def test_objects_are_left_out_a_few_times_for_each_process(monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []
    monkeypatch.setattr(collector, "_times", 0)
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    for _ in range(10):
        collector.settle()
    assert calls == ["collect", "freeze"] * 3


def test_spark_collects_after_each_use_of_a_process_that_it_keeps():
    code = inspect.getsource(pyspark.daemon)
    assert '"SPARK_REUSE_WORKER"' in code
    assert "gc.collect()" in code
