"""Subscriptions by name, over an administration that records its calls."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import IsPartitionedError, SubscriptionBusyError, SubscriptionExistsError, SubscriptionNotFoundError
from quire.ledger.position import EARLIEST, LATEST, Position
from tests.unit.broker.admin.fakes import TOPICS, ask, fail_with

NAME = "persistent://public/default/t"
PATH = f"{TOPICS}/t/subscription/s"


def test_subscriptions_of_a_topic_are_a_list_of_names() -> None:
    response, asked = ask("GET", f"{TOPICS}/t/subscriptions")
    assert (response.status_code, response.json()) == (200, ["persistent://public/default/a"])
    assert asked == [("subscriptions", NAME)]


@pytest.mark.parametrize(
    ("body", "position"),
    [
        ({}, LATEST),
        ({"json": "earliest"}, EARLIEST),
        ({"json": {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}}, EARLIEST),
        ({"json": {"ledgerId": 3, "entryId": 9, "partitionIndex": -1, "properties": None}}, Position(3, 9)),
    ],
)
def test_a_subscription_is_made_at_a_position(body: dict[str, Any], position: Position) -> None:
    response, asked = ask("PUT", f"{PATH}?replicated=false&authoritative=true", **body)
    assert (response.status_code, response.content) == (204, b"")
    assert asked == [("create_subscription", NAME, "s", position)]


@pytest.mark.parametrize(("escaped", "name"), [("a%2Fb", "a/b"), ("100%25", "100%"), ("a+b", "a b"), ("%C3%A9", "é")])
def test_the_name_of_a_subscription_may_hold_anything(escaped: str, name: str) -> None:
    _, asked = ask("PUT", f"{TOPICS}/x%2Fy/subscription/{escaped}")
    assert asked == [("create_subscription", "persistent://public/default/x/y", name, LATEST)]
    _, asked = ask("DELETE", f"{TOPICS}/x%2Fy/subscription/{escaped}")
    assert asked == [("delete_subscription", "persistent://public/default/x/y", name, False)]


@pytest.mark.parametrize("escaped", ["%20", "%2E", "%00", "%ff"])
def test_a_name_that_no_subscription_can_have_is_refused(escaped: str) -> None:
    response, asked = ask("PUT", f"{TOPICS}/t/subscription/{escaped}")
    assert (response.status_code, asked) == (412, [])


def test_what_would_be_lost_is_refused() -> None:
    response, asked = ask("PUT", f"{PATH}?replicated=true", json=None)
    assert (response.status_code, asked) == (501, [])


def test_a_subscription_is_made_with_properties() -> None:
    body = {"ledgerId": 1, "entryId": 1, "properties": {"k": "v"}}
    response, asked = ask("PUT", PATH, json=body)
    assert response.status_code == 204
    assert asked == [("create_subscription", NAME, "s", Position(1, 1), ("k", "v"))]
    body["properties"] = {"k": "v" * (33 << 10)}
    assert ask("PUT", PATH, json=body)[0].status_code == 412


@pytest.mark.parametrize(
    ("method", "error", "status"),
    [
        ("PUT", SubscriptionExistsError("x"), 409),
        ("DELETE", SubscriptionNotFoundError("x"), 404),
        ("DELETE", SubscriptionBusyError("x"), 412),
        ("DELETE", IsPartitionedError("x"), 405),
    ],
)
def test_what_the_broker_refuses_has_the_originals_status(method: str, error: Exception, status: int) -> None:
    response, _ = ask(method, PATH, fail_with(error))
    assert (response.status_code, response.json()) == (status, {"reason": "x"})


def test_a_subscription_is_deleted_by_force_when_asked() -> None:
    response, asked = ask("DELETE", f"{PATH}?force=true")
    assert (response.status_code, asked) == (204, [("delete_subscription", NAME, "s", True)])
