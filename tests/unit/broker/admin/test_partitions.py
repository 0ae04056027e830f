"""{topic}/partitions, over an administration that records its calls."""

from __future__ import annotations

import pytest

from broker.errors import (
    BeingDeletedError,
    InvalidTopicError,
    NotPartitionedError,
    PartitionCountError,
    TopicBusyError,
    TopicExistsError,
    TopicNotFoundError,
)
from tests.unit.broker.admin.fakes import TOPICS, FakeAdministration, ask, fail_with

PATH = f"{TOPICS}/t/partitions"
NAME = "persistent://public/default/t"
VND = {"Content-Type": "application/vnd.partitioned-topic-metadata+json"}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("headers", [JSON, {}, {"Content-Type": "application/json; charset=utf-8"}])
def test_a_bare_integer_makes_a_partitioned_topic(headers: dict[str, str]) -> None:
    response, asked = ask("PUT", PATH, content="4", headers=headers)
    assert (response.status_code, response.content) == (204, b"")
    assert asked == [("create_partitioned_topic", NAME, 4, {})]


def test_so_does_the_media_type_with_properties() -> None:
    body = '{"partitions": 4, "deleted": false, "properties": {"k": "v"}}'
    response, asked = ask("PUT", PATH, content=body, headers=VND)
    assert response.status_code == 204
    assert asked == [("create_partitioned_topic", NAME, 4, {"k": "v"})]


def test_no_properties_are_none() -> None:
    _, asked = ask("PUT", PATH, content='{"partitions": 4, "properties": null}', headers=VND)
    assert asked == [("create_partitioned_topic", NAME, 4, {})]


NO_NUMBERS = (
    *("", "four", '"4"', "4.0", "true", "null", "[4]", "{}", '{"partitions": "4"}'),
    *('{"partitions": 4, "properties": {"k": 1}}', '{"partitions": 4, "properties": []}'),
    *("1e999", "NaN", "9" * 5000, str(1 << 31), "[" * 50_000),
)


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("body", NO_NUMBERS)
def test_what_is_no_number_of_partitions_is_refused_before_anything_is_done(method: str, body: str) -> None:
    response, asked = ask(method, PATH, content=body, headers=JSON)
    assert (response.status_code, asked) == (400, [])
    assert response.json()["reason"]


@pytest.mark.parametrize("count", ["0", "-1"])
def test_whether_a_number_may_be_is_for_the_broker_to_say(count: str) -> None:
    response, asked = ask("PUT", PATH, fail_with(PartitionCountError("too few")), content=count, headers=JSON)
    assert asked == [("create_partitioned_topic", NAME, int(count), {})]
    assert (response.status_code, response.json()) == (406, {"reason": "too few"})


def test_more_partitions_are_asked_for_in_all() -> None:
    response, asked = ask("POST", f"{PATH}?updateLocalTopicOnly=false&force=true", content="6", headers=JSON)
    assert (response.status_code, response.content) == (204, b"")
    assert asked == [("grow_partitioned_topic", NAME, 6)]


@pytest.mark.parametrize(
    ("method", "error", "status"),
    [
        ("PUT", TopicExistsError("x"), 409),
        ("PUT", BeingDeletedError("x"), 409),
        ("POST", BeingDeletedError("x"), 503),
        ("PUT", TopicNotFoundError("x"), 404),
        ("PUT", InvalidTopicError("x"), 412),
        ("POST", NotPartitionedError("x"), 409),
        ("POST", PartitionCountError("x"), 422),
        ("POST", TopicNotFoundError("x"), 404),
        ("DELETE", NotPartitionedError("x"), 404),
        ("DELETE", TopicBusyError("x"), 412),
        ("GET", TopicNotFoundError("x"), 404),
    ],
)
def test_what_the_broker_refuses_has_the_originals_status(method: str, error: Exception, status: int) -> None:
    content = "4" if method in ("PUT", "POST") else None
    response, _ = ask(method, PATH, fail_with(error), content=content, headers=JSON)
    assert (response.status_code, response.json()) == (status, {"reason": "x"})


@pytest.mark.parametrize(
    ("query", "call"),
    [
        ("", "partitions"),
        ("&checkAllowAutoCreation=false", "partitions"),
        ("&checkAllowAutoCreation=true", "client_partitions"),
    ],
)
def test_only_a_clients_lookup_may_make_what_it_asks_for(query: str, call: str) -> None:
    def four(administration: FakeAdministration) -> None:
        administration.partition_count = 4

    response, asked = ask("GET", f"{PATH}?authoritative=false{query}", four)
    assert (response.status_code, response.json()) == (200, {"partitions": 4, "deleted": False})
    assert asked == [(call, NAME)]


@pytest.mark.parametrize(("query", "force"), [("", False), ("?force=true", True), ("?force=False", False)])
def test_a_partitioned_topic_is_deleted_by_force_only_when_asked(query: str, force: bool) -> None:
    response, asked = ask("DELETE", PATH + query)
    assert (response.status_code, asked) == (204, [("delete_partitioned_topic", NAME, force)])
