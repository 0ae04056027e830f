"""{topic}/partitions, over an administration that records its calls."""

from __future__ import annotations

import pytest

from tests.unit.broker.admin.fakes import TOPICS, ask

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
