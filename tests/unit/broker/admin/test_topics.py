"""Lists of topics, creating and deleting a topic, and its contents."""

from __future__ import annotations

import pytest

from broker.errors import (
    BeingDeletedError,
    IsPartitionedError,
    NotAllowedError,
    TopicBusyError,
    TopicExistsError,
    TopicNotFoundError,
)
from quire.ledger.position import Position
from tests.unit.broker.admin.fakes import TOPICS, FakeAdministration, ask, fail_with

NAME = "persistent://public/default/t"
PLAIN = {"partitionIndex": -1, "batchIndex": -1, "batchSize": 0}
"""Fields of a message id of no batch and no partition, beside the entry."""
NAMES = ["persistent://public/default/a"]


@pytest.mark.parametrize(
    ("path", "call"),
    [
        (TOPICS, "topics_of_namespace"),
        (f"{TOPICS}/partitioned", "partitioned_topics_of_namespace"),
        ("/admin/v2/namespaces/public/default/topics", "topics_of_namespace"),
        ("/admin/v2/namespaces/public/default/topics?mode=PERSISTENT", "topics_of_namespace"),
        ("/admin/v2/namespaces/public/default/topics?mode=ALL&includeSystemTopic=true", "topics_of_namespace"),
    ],
)
def test_topics_of_a_namespace_are_a_list_of_names(path: str, call: str) -> None:
    response, asked = ask("GET", path)
    assert (response.status_code, response.json()) == (200, NAMES)
    assert asked == [(call, "public/default")]


def test_there_are_no_topics_that_are_not_persistent() -> None:
    response, _ = ask("GET", "/admin/v2/namespaces/public/default/topics?mode=NON_PERSISTENT")
    assert (response.status_code, response.json()) == (200, [])


@pytest.mark.parametrize("mode", ["ALL", "NON_PERSISTENT"])
def test_a_namespace_that_is_not_there_is_not_found(mode: str) -> None:
    error = fail_with(TopicNotFoundError("namespace a/b does not exist"))
    response, _ = ask("GET", f"/admin/v2/namespaces/a/b/topics?mode={mode}", error)
    assert (response.status_code, response.json()) == (404, {"reason": "namespace a/b does not exist"})


@pytest.mark.parametrize(
    ("query", "status"),
    [("namespaces/public/default/topics?mode=SOME", 400), ("persistent/public/default?bundle=0x0_0x1", 501)],
)
def test_a_list_that_would_not_be_the_one_asked_for_is_refused(query: str, status: int) -> None:
    response, asked = ask("GET", f"/admin/v2/{query}")
    assert (response.status_code, asked) == (status, [])


@pytest.mark.parametrize("body", ["", "null", "{}"])
def test_a_topic_is_made(body: str) -> None:
    response, asked = ask("PUT", f"{TOPICS}/t?authoritative=true", content=body)
    assert (response.status_code, response.content, asked) == (204, b"", [("create_topic", NAME)])


def test_a_topic_is_made_with_properties() -> None:
    response, asked = ask("PUT", f"{TOPICS}/t", json={"k": "v"})
    assert (response.status_code, asked) == (204, [("create_topic", NAME, ("k", "v"))])


@pytest.mark.parametrize(
    "properties", [{"pulsar.topic.epoch": "7"}, {"index": "0"}, {"quire.transactions": "x"}, {"k": "v" * (33 << 10)}]
)
def test_properties_for_brokers_and_large_ones_are_refused(properties: dict[str, str]) -> None:
    for path in (f"{TOPICS}/t", f"{TOPICS}/t/properties"):
        response, asked = ask("PUT", path, json=properties)
        assert (response.status_code, asked) == (412, [])


def test_a_topic_may_have_the_name_of_a_list() -> None:
    _, asked = ask("PUT", f"{TOPICS}/partitioned")
    assert asked == [("create_topic", "persistent://public/default/partitioned")]


@pytest.mark.parametrize(("query", "force"), [("", False), ("?force=true", True)])
def test_a_topic_is_deleted(query: str, force: bool) -> None:
    response, asked = ask("DELETE", f"{TOPICS}/t{query}")
    assert (response.status_code, asked) == (204, [("delete_topic", NAME, force)])


@pytest.mark.parametrize("force", ["", "yes", "1", "tru"])
def test_what_deletes_does_not_guess(force: str) -> None:
    response, asked = ask("DELETE", f"{TOPICS}/t?force={force}")
    assert (response.status_code, asked) == (400, [])


@pytest.mark.parametrize(
    ("method", "path", "error", "status"),
    [
        ("PUT", "t", TopicExistsError("x"), 409),
        ("PUT", "t", BeingDeletedError("x"), 409),
        ("PUT", "t-partition-9", NotAllowedError("x"), 412),
        ("DELETE", "t", TopicBusyError("x"), 412),
        ("DELETE", "t", TopicNotFoundError("x"), 404),
        ("DELETE", "t", IsPartitionedError("x"), 409),
        ("GET", "t/internalStats", IsPartitionedError("x"), 405),
        ("GET", "t/messageid/1", IsPartitionedError("x"), 405),
        ("GET", "t/lastMessageId", TopicNotFoundError("x"), 404),
    ],
)
def test_what_the_broker_refuses_has_the_originals_status(
    method: str, path: str, error: Exception, status: int
) -> None:
    response, _ = ask(method, f"{TOPICS}/{path}", fail_with(error))
    assert (response.status_code, response.json()) == (status, {"reason": "x"})


@pytest.mark.parametrize(("query", "metadata"), [("", False), ("?metadata=true", True)])
def test_internal_stats_are_those_of_the_topic(query: str, metadata: bool) -> None:
    response, asked = ask("GET", f"{TOPICS}/t/internalStats{query}")
    assert response.json() == {"of": NAME, "metadata": metadata, "lastConfirmedEntry": "7:3"}
    assert asked == [("internal_stats", NAME, metadata)]


def test_internal_stats_of_a_partitioned_topic_are_those_of_its_partitions() -> None:
    def two(administration: FakeAdministration) -> None:
        administration.partition_count = 2

    response, _ = ask("GET", f"{TOPICS}/t/partitioned-internalStats", two)
    found = response.json()
    assert found["metadata"] == {"partitions": 2, "deleted": False}
    assert {name: stats["of"] for name, stats in found["partitions"].items()} == {
        f"{NAME}-partition-{index}": f"{NAME}-partition-{index}" for index in range(2)
    }


def test_a_topic_that_is_not_partitioned_has_no_partitioned_stats() -> None:
    assert ask("GET", f"{TOPICS}/t/partitioned-internalStats")[0].status_code == 404


@pytest.mark.parametrize(("topic", "partition"), [("t", -1), ("t-partition-3", 3)])
def test_a_message_is_found_by_its_time(topic: str, partition: int) -> None:
    response, asked = ask("GET", f"{TOPICS}/{topic}/messageid/1700000000123")
    assert response.json() == {**PLAIN, "ledgerId": 12, "entryId": 5, "partitionIndex": partition}
    assert asked == [("message_id_at", f"persistent://public/default/{topic}", 1700000000123)]


@pytest.mark.parametrize("time", ["now", "1.5", "%31%20", "9" * 19, "9" * 20, "-"])
def test_what_is_no_time_is_refused(time: str) -> None:
    response, asked = ask("GET", f"{TOPICS}/t/messageid/{time}")
    assert (response.status_code, asked) == (400, [])


def test_the_last_message_is_the_last_confirmed_entry() -> None:
    response, _ = ask("GET", f"{TOPICS}/t/lastMessageId")
    assert response.json() == {**PLAIN, "ledgerId": 7, "entryId": 3}


def test_positions_above_the_range_of_doubles_come_whole() -> None:
    def far(administration: FakeAdministration) -> None:
        administration.position = Position((1 << 63) - 1, (1 << 53) + 1)

    response, _ = ask("GET", f"{TOPICS}/t/messageid/1", far)
    assert '"ledgerId":9223372036854775807,"entryId":9007199254740993' in response.text
