"""quire.service.http, over real sockets on this machine."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import httpx
import pytest
import trio

from quire.service.http import Health, make_app, serve_http
from quire.service.log import captured
from quire.service.metrics import Metrics


async def well() -> None: ...


async def ill() -> None:
    raise RuntimeError("no bookie")


def ask(
    path: str, *, ready: bool = True, check: Callable[[], Awaitable[None]] = well, method: str = "GET"
) -> httpx.Response:
    """The answer of a server to one request."""

    async def main() -> httpx.Response:
        metrics = Metrics()
        metrics.gauge("pulsar_health", "", lambda: 1)
        app = make_app(metrics, Health(is_ready=lambda: ready, check=check))
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(partial(serve_http, app, "127.0.0.1", 0, stop=stop))
            async with httpx.AsyncClient(base_url=f"http://{host}:{port}") as client:
                response = await client.request(method, path)
            stop.set()
        return response

    return trio.run(main)


def test_status_is_ok_for_load_balancers() -> None:
    response = ask("/status.html")
    assert (response.status_code, response.text) == (200, "OK")


def test_status_and_readiness_fail_while_the_server_is_not_ready() -> None:
    assert ask("/status.html", ready=False).status_code == 503
    assert ask("/admin/v2/brokers/ready", ready=False).status_code == 503


def test_readiness_and_health_answer_ok() -> None:
    assert ask("/admin/v2/brokers/ready").text == "ok"
    assert ask("/admin/v2/brokers/health").text == "ok"


def test_a_failed_health_check_says_why() -> None:
    response = ask("/admin/v2/brokers/health", check=ill)
    assert (response.status_code, json.loads(response.text)) == (500, {"reason": "no bookie"})


def test_metrics_are_prometheus_text() -> None:
    response = ask("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "pulsar_health 1.0" in response.text


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("POST", "/metrics", 405)])
def test_what_is_not_there_is_refused_as_the_admin_api_does(method: str, path: str, status: int) -> None:
    response = ask(path, method=method)
    assert response.status_code == status
    assert path in json.loads(response.text)["reason"]


def test_a_taken_port_is_an_error_at_once() -> None:
    async def main() -> None:
        app = make_app(Metrics(), Health(is_ready=lambda: True, check=well))
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(partial(serve_http, app, "127.0.0.1", 0))
            with trio.fail_after(5):
                await serve_http(app, host, port)

    with pytest.raises(ExceptionGroup) as caught:
        trio.run(main)
    assert caught.group_contains(OSError, match="in use")


def test_a_web_port_out_of_descriptors_says_so_in_one_line() -> None:
    """trio writes a traceback every 0.1 s."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            app = make_app(Metrics(), Health(is_ready=lambda: True, check=well))
            await nursery.start(partial(serve_http, app, "127.0.0.1", 0, stop=trio.Event()))
            with captured() as lines:
                for _ in range(20):
                    logging.getLogger("trio.serve_listeners").error("accept returned %s", "EMFILE", exc_info=True)
            assert [line["event"] for line in lines] == ["accepting no connections until descriptors are free"]
            nursery.cancel_scope.cancel()

    trio.run(main)
