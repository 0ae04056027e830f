"""HTTP lookup: the field names that clients require, and the broker in the answer."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import TopicNotFoundError
from broker.ownership.lookup import Redirect
from tests.unit.broker.admin.cluster_fakes import THERE, ClusterRest
from tests.unit.broker.admin.fakes import BROKER_URL, WEB_URL, ask, fail_with

PATH = "/lookup/v2/topic/persistent/public/default/t"


@pytest.mark.parametrize("query", ["", "?authoritative=true", "?authoritative=false&listenerName="])
def test_a_lookup_names_this_broker_with_every_field_clients_insist_on(query: str) -> None:
    response, asked = ask("GET", PATH + query)
    assert (response.status_code, asked) == (200, [("partitions", "persistent://public/default/t")])
    assert response.json() == {
        "brokerUrl": BROKER_URL,
        "brokerUrlTls": "",
        "httpUrl": WEB_URL,
        "httpUrlTls": "",
        "nativeUrl": BROKER_URL,
        "brokerUrlSsl": "",
    }


def test_a_lookup_in_a_namespace_that_is_not_there_is_not_found() -> None:
    response, _ = ask("GET", PATH, fail_with(TopicNotFoundError("no such namespace")))
    assert (response.status_code, response.json()) == (404, {"reason": "no such namespace"})


@pytest.mark.parametrize(
    "options", [{"params": {"listenerName": "test"}}, {"headers": {"X-Pulsar-ListenerName": "test"}}]
)
def test_a_listener_that_is_not_there_is_told_in_the_words_clients_know(options: dict[str, Any]) -> None:
    response, _ = ask("GET", PATH, **options)
    assert (response.status_code, response.json()["reason"]) == (503, "the broker do not have test listener")


@pytest.mark.parametrize(("domain", "status"), [("non-persistent", 200), ("topic", 412)])
def test_topics_of_both_kinds_are_looked_up(domain: str, status: int) -> None:
    response, asked = ask("GET", PATH.replace("persistent", domain))
    assert (response.status_code, bool(asked)) == (status, status == 200)


async def test_an_http_lookup_answers_the_owner_or_who_shall_say(rest: ClusterRest) -> None:
    assert (await rest.get(PATH))["brokerUrl"] == "pulsar://broker:6650"
    rest.ownership.found = THERE
    found = await rest.get(f"{PATH}?authoritative=true")
    assert (found["brokerUrl"], found["httpUrl"]) == ("pulsar://other:6650", "http://other:8080")
    assert rest.ownership.asked[-1] == ("lookup", "persistent://public/default/t", True)
    rest.ownership.found = Redirect("pulsar://other:6650", "http://other:8080", authoritative=True)
    assert await rest.sent_to("GET", PATH) == f"http://other:8080{PATH}?authoritative=true"
