"""Entries deleted before they were read: an error with the details, or one warning. And the purpose of the hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.spark.peer import options_of as options_of_clients
from tests.spark.peer import quiet_client, serve
from tests.spark.support import Stream, events, internal_stats, numbered, publish, wait_for
from tests.support import web
from tests.support.refusals import refuses
from tests.support.server import StandaloneProcess


@pytest.fixture(scope="module")
def rolling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Run a server whose ledgers have ten entries, without retention."""
    conf: dict[str, object] = {
        "managedLedgerMaxEntriesPerLedger": 10,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "defaultRetentionTimeInMinutes": 0,
        "defaultRetentionSizeInMB": 0,
        "retentionCheckIntervalInSeconds": 1,
    }
    with serve(tmp_path_factory.mktemp("rolling"), conf) as running:
        yield running


@pytest.fixture
def publisher(rolling: StandaloneProcess) -> Iterator[pulsar.Client]:
    made = quiet_client(rolling.url)
    yield made
    made.close()


def options_of(server: StandaloneProcess, topic: str, **more: str) -> dict[str, str]:
    found = {**options_of_clients(server), "topic": topic, "startingOffsets": "earliest"}
    return {**found, "operationTimeoutMs": "10000", **more}


def hold(server: StandaloneProcess, topic: str, name: str) -> None:
    url = f"{server.web}/admin/v2/{topic.replace('://', '/')}/subscription/{name}"
    answer = web.request("PUT", url, json={"ledgerId": -1, "entryId": -1})
    assert answer.status_code == 204, answer.text


def release(server: StandaloneProcess, topic: str, name: str) -> None:
    url = f"{server.web}/admin/v2/{topic.replace('://', '/')}/subscription/{name}?force=true"
    assert web.request("DELETE", url).status_code == 204


def first_ledger(server: StandaloneProcess, topic: str) -> int:
    found: int = internal_stats(server, topic)["ledgers"][0]["ledgerId"]
    return found


def fill(server: StandaloneProcess, publisher: pulsar.Client, topic: str, first: int, stop: int) -> list[int]:
    """Publish while another subscription holds all ledgers; return the ledgers."""
    hold(server, topic, "all")
    publish(publisher, topic, numbered(first, stop))
    return [ledger["ledgerId"] for ledger in internal_stats(server, topic)["ledgers"]]


def wait_until_gone(server: StandaloneProcess, topic: str, ledger: int) -> None:
    wait_for(lambda: first_ledger(server, topic) > ledger, f"the deletion of ledger {ledger}")


def test_a_deleted_range_fails_the_read_with_topic_range_and_option(
    spark: Any, rolling: StandaloneProcess, publisher: pulsar.Client, topic: str
) -> None:
    ledgers = fill(rolling, publisher, topic, 0, 35)
    release(rolling, topic, "all")
    wait_until_gone(rolling, topic, ledgers[1])
    start = json.dumps({topic: f"{ledgers[0]}:4"})
    frame = spark.read.format("quire").options(**options_of(rolling, topic, startingOffsets=start)).load()
    with pytest.raises(Exception, match=rf"{topic}: .* from {ledgers[0]}:4 .*failOnDataLoss") as raised:
        frame.collect()
    assert "Traceback" not in str(raised.value)


def test_with_the_option_off_a_deleted_range_is_one_warning(
    spark: Any, rolling: StandaloneProcess, publisher: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    ledgers = fill(rolling, publisher, topic, 0, 35)
    release(rolling, topic, "all")
    wait_until_gone(rolling, topic, ledgers[1])
    trace = tmp_path / "trace.jsonl"
    more = {"startingOffsets": json.dumps({topic: f"{ledgers[0]}:4"}), "failOnDataLoss": "false", "trace": str(trace)}
    rows = spark.read.format("quire").options(**options_of(rolling, topic, **more)).load().collect()
    assert {bytes(row["value"]) for row in rows} <= set(numbered(20, 35))
    assert len(events(trace, "data-loss")) == 1


def test_the_hold_keeps_the_data_between_two_runs(
    spark: Any, rolling: StandaloneProcess, publisher: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    fill(rolling, publisher, topic, 0, 25)
    stream = Stream(spark, options_of(rolling, topic, subscription="hold", chunkedMessageHold="1"), tmp_path)
    stream.drain()
    release(rolling, topic, "all")
    publish(publisher, topic, numbered(25, 60))
    stream.drain()
    assert stream.values() == numbered(0, 60)
    # The last commit of a run comes with the next one: then what was read may go, and goes.
    publish(publisher, topic, numbered(60, 61))
    stream.drain()
    assert stream.values() == numbered(0, 61)
    wait_for(lambda: len(internal_stats(rolling, topic)["ledgers"]) <= 4, "the deletion of what was read")


def test_without_a_hold_the_same_run_loses_data_and_says_so(
    spark: Any, rolling: StandaloneProcess, publisher: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    ledgers = fill(rolling, publisher, topic, 0, 25)
    stream = Stream(spark, options_of(rolling, topic, hold="none"), tmp_path)
    stream.drain()
    publish(publisher, topic, numbered(25, 60))
    release(rolling, topic, "all")
    wait_until_gone(rolling, topic, ledgers[-1])
    refuses(Exception, lambda: stream.drain(), f"data loss in {topic}: .*failOnDataLoss")
    stream.drain(failOnDataLoss="false")
    assert set(stream.values()) < set(numbered(0, 60)), "the control must lose data, or the hold proves nothing"


def test_a_hold_that_is_gone_is_made_again_if_the_data_is_still_there(
    spark: Any, rolling: StandaloneProcess, publisher: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    fill(rolling, publisher, topic, 0, 25)
    stream = Stream(spark, options_of(rolling, topic, subscription="hold"), tmp_path)
    stream.drain()
    wait_for(lambda: _released(rolling, topic, "hold"), "the end of the first run's planner")
    publish(publisher, topic, numbered(25, 30))
    stream.drain()
    assert stream.values() == numbered(0, 30)
    assert "hold" in internal_stats(rolling, topic)["cursors"]


def test_a_hold_that_is_gone_with_its_data_is_data_loss_at_every_start(
    spark: Any, rolling: StandaloneProcess, publisher: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    ledgers = fill(rolling, publisher, topic, 0, 25)
    stream = Stream(spark, options_of(rolling, topic, subscription="hold"), tmp_path)
    stream.drain()
    publish(publisher, topic, numbered(25, 60))
    wait_for(lambda: _released(rolling, topic, "hold"), "the end of the first run's planner")
    release(rolling, topic, "all")
    wait_until_gone(rolling, topic, ledgers[-1])
    for _ in range(2):  # the first failure must not make the second start look right
        refuses(Exception, lambda: stream.drain(), f"data loss in {topic}")


def _released(server: StandaloneProcess, topic: str, name: str) -> bool:
    """Drop a subscription once it has no consumer; return whether it was dropped."""
    answer = web.request("DELETE", f"{server.web}/admin/v2/{topic.replace('://', '/')}/subscription/{name}")
    return answer.status_code == 204
