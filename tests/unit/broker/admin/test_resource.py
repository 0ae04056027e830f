"""Common behaviour of every resource: names, statuses, bodies, deadlines, and unserved requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
import trio
from starlette.routing import Match
from trio.testing import wait_all_tasks_blocked

from broker.admin.requests import BODY_BYTES_MAX, PATH_SHOWN_MAX
from broker.admin.resources import routes
from broker.errors import ServiceNotReadyError
from quire.service.log import Event
from tests.unit.broker.admin.fakes import TOPICS, Rest, ask, fail_with


@pytest.mark.parametrize(
    "path",
    [
        "persistent/public/default/%2E%2E",
        "persistent/public/default/a%5Cb",
        "persistent/public/default/%252F",
        "persistent/public/default/a%2F%2Fb",
        "persistent/public/default/a%00",
        "persistent/public/default/%zz",
        "persistent/public/default/" + "a" * 5000,
        "persistent/pub%2Flic/default/t",
        "persistent/public/de+fault/t",
    ],
)
def test_a_name_that_no_topic_can_have_is_refused(path: str) -> None:
    response, asked = ask("PUT", f"/admin/v2/{path}")
    assert (response.status_code, asked) == (412, [])
    assert response.json()["reason"]


@pytest.mark.parametrize(("method", "path"), [("GET", f"{TOPICS}/t/subscriptions"), ("PUT", f"{TOPICS}/t")])
def test_a_mistake_of_ours_is_500_and_an_error_in_the_log(
    method: str, path: str, expect_error: Callable[[str], None]
) -> None:
    expect_error("admin request failed")
    response, _ = ask(method, path, fail_with(RuntimeError("secret")))
    assert response.status_code == 500
    assert "RuntimeError" in response.json()["reason"]
    assert "secret" not in response.text


def test_a_body_above_the_bound_is_refused_from_its_header() -> None:
    response, read = send_chunks(1000, {"Content-Length": str(BODY_BYTES_MAX + 1)})
    assert (response.status_code, read) == (413, 0)


def test_a_body_of_unknown_length_is_read_up_to_the_bound() -> None:
    response, read = send_chunks(1000, {"Transfer-Encoding": "chunked"})
    assert response.status_code == 413
    assert read <= BODY_BYTES_MAX // CHUNK + 2


def test_a_body_of_the_bounds_size_is_read() -> None:
    response, asked = ask("PUT", f"{TOPICS}/t", content=b"{}" + b" " * (BODY_BYTES_MAX - 2))
    assert (response.status_code, len(asked)) == (204, 1)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream"])
def test_a_body_that_says_it_is_no_json_is_refused(kind: str) -> None:
    response, asked = ask("POST", f"{TOPICS}/t/partitions", content="4", headers={"Content-Type": kind})
    assert (response.status_code, asked) == (415, [])
    assert "application/json" in response.json()["reason"]


async def test_a_question_ends_at_the_deadline() -> None:
    async def once(rest: Rest) -> None:
        rest.administration.gate = trio.Event()
        response = await rest.ask("GET", f"{TOPICS}/t/subscriptions")
        assert (response.status_code, trio.current_time() - started[0]) == (504, 5)
        assert "5 s" in response.json()["reason"]

    rest = Rest(deadline_s=5)
    started: list[float] = []

    async def main() -> None:
        started.append(trio.current_time())
        await rest.run(once)

    await main()
    assert rest.administration.done == []


@pytest.mark.real_clock
async def test_a_request_that_is_broken_off_in_its_body_does_nothing() -> None:
    events = iter([{"type": "http.request", "body": b"16", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(events)

    async def send(event: Any) -> None: ...

    rest = Rest()
    path = f"{TOPICS}/t/partitions"
    scope = {"type": "http", "method": "PUT", "path": path, "raw_path": path.encode(), "headers": []}
    for route in routes(rest.service):
        match, child_scope = route.matches(scope)
        if match is Match.FULL:
            await route.handle({**scope, **child_scope}, receive, send)
    assert next(events, None) is None, "the body was read"
    assert rest.administration.asked == []


@pytest.mark.real_clock
async def test_requests_above_the_bound_are_told_to_come_again() -> None:
    async def once(rest: Rest) -> None:
        gate = rest.administration.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rest.ask, "PUT", f"{TOPICS}/a")
            await wait_all_tasks_blocked()
            assert (await rest.ask("PUT", f"{TOPICS}/b")).status_code == 503
            gate.set()
        assert (await rest.ask("PUT", f"{TOPICS}/b")).status_code == 204

    rest = Rest(requests_max=1)
    await rest.run(once)
    assert rest.administration.done == ["create_topic", "create_topic"]


async def test_a_request_whose_client_went_away_counts_no_more() -> None:
    async def once(rest: Rest) -> None:
        rest.administration.gate = trio.Event()
        with trio.move_on_after(1) as gone:
            await rest.ask("DELETE", f"{TOPICS}/t/partitions")
        assert gone.cancelled_caught
        assert rest.service.under_way == 0

    await Rest().run(once)


@pytest.mark.parametrize(
    ("method", "logged"), [("PUT", ["PUT /admin/v2/persistent/public/default/a%2Fb"]), ("GET", [])]
)
def test_what_changed_something_is_in_the_log(method: str, logged: list[str], log_events: list[Event]) -> None:
    path = f"{TOPICS}/a%2Fb" if method == "PUT" else f"{TOPICS}/a%2Fb/subscriptions"
    ask(method, path)
    ask(method, path, fail_with(ServiceNotReadyError("loading")))
    assert [event["request"] for event in log_events if event["event"] == "admin"] == logged


async def test_a_long_path_is_cut_where_it_is_shown() -> None:
    async def once(rest: Rest) -> None:
        rest.administration.gate = trio.Event()
        response = await rest.ask("GET", f"{TOPICS}/{'a' * 4000}/subscriptions")
        assert len(response.json()["reason"]) < PATH_SHOWN_MAX + 100

    await Rest(deadline_s=5).run(once)


CHUNK = 4096


class _Chunks(httpx2.AsyncByteStream):
    """A body that counts its chunks that were read."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.left == 0:
            raise StopAsyncIteration
        self.left -= 1
        return b"x" * CHUNK


def send_chunks(count: int, headers: dict[str, str]) -> tuple[httpx2.Response, int]:
    """Return the answer to a PUT with a body of `count` chunks, and the number of chunks that were read."""
    rest, body = Rest(), _Chunks(count)
    responses: list[httpx2.Response] = []

    async def once(rest: Rest) -> None:
        request = httpx2.Request("PUT", f"http://broker{TOPICS}/t", headers=headers, stream=body)
        responses.append(await rest.client.send(request))

    trio.run(rest.run, once)
    assert rest.administration.asked == []
    return responses[0], count - body.left


@pytest.mark.parametrize("text", [r'"\ud800"', r'"\udfff x"', r'"\ud83d"'])
@pytest.mark.parametrize("body", ['{"properties":{"k":%s},"partitions":1}', '{"properties":{%s:"v"},"partitions":1}'])
def test_half_a_character_in_a_body_is_a_malformed_request(text: str, body: str) -> None:
    response, asked = ask("PUT", f"{TOPICS}/t/partitions", content=(body % text).encode())
    assert (response.status_code, asked) == (400, [])
    assert "surrogate" in response.json()["reason"]


def test_both_halves_of_a_character_are_one() -> None:
    _, asked = ask("PUT", f"{TOPICS}/t/partitions", content=rb'{"properties":{"k":"\ud83d\ude00"},"partitions":1}')
    assert asked[0][-1] == {"k": "\U0001f600"}


def test_a_listener_that_a_header_names_and_is_not_there_is_told_in_the_words_clients_know() -> None:
    response, _ = ask("GET", "/lookup/v2/topic/persistent/public/default/t", headers={"X-Pulsar-ListenerName": "test"})
    assert (response.status_code, response.json()["reason"]) == (503, "the broker do not have test listener")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1.5e400"])
def test_a_number_that_would_become_infinity_is_refused(number: str) -> None:
    """It would be stored, and no answer could have it: JSON has no Infinity."""
    response, _ = ask("PUT", "/admin/v2/clusters/c2", content=f'{{"serviceUrl": {number}}}')
    assert response.status_code == 400
    assert "out of range" in response.json()["reason"]
