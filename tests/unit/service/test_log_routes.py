"""quire.service.log_routes"""

from __future__ import annotations

import io
from collections.abc import Iterator

import httpx2
import pytest
import trio
from starlette.applications import Starlette

from quire.service import log
from quire.service.log_routes import LEVELS_MAX, log_routes


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure("info", stream)
    yield stream
    log.configure()


def asked(*requests: tuple[str, str]) -> list[httpx2.Response]:
    async def main() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(Starlette(routes=log_routes()))
        async with httpx2.AsyncClient(transport=transport, base_url="http://server") as client:
            return [await client.request(method, path) for method, path in requests]

    return trio.run(main)


def test_the_level_of_one_logger_is_changed_and_taken_back(written: io.StringIO) -> None:
    logger = log.get_logger("broker.dispatch.subscription")
    logger.debug("before")
    (put,) = asked(("PUT", "/quire/loggers/broker.dispatch?level=debug"))
    assert (put.status_code, put.json()) == (200, {"": "info", "broker.dispatch": "debug"})
    logger.debug("between")
    deleted, read = asked(("DELETE", "/quire/loggers/broker.dispatch"), ("GET", "/quire/loggers"))
    assert deleted.json() == read.json() == {"": "info"}
    logger.debug("after")
    assert [word for word in ("before", "between", "after") if f"event={word}" in written.getvalue()] == ["between"]
    assert 'event="log level changed" of=broker.dispatch to=debug' in written.getvalue()


def test_the_level_of_all_others_can_be_changed(written: io.StringIO) -> None:
    (put,) = asked(("PUT", "/quire/loggers?level=error"))
    assert put.json() == {"": "error"}
    log.get_logger("x").warning("quiet")
    assert "quiet" not in written.getvalue()


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (("PUT", "/quire/loggers/broker?level=loud"), "'loud' is no log level"),
        (("PUT", "/quire/loggers/broker"), "'' is no log level"),
        (("PUT", "/quire/loggers/bro%20ker?level=info"), "'bro ker' is not the name of a logger"),
    ],
)
def test_a_mistake_changes_nothing_and_is_named(written: io.StringIO, request_: tuple[str, str], reason: str) -> None:
    (answer,) = asked(request_)
    assert answer.status_code == 400
    assert reason in answer.json()["reason"]
    assert log.levels() == {"": "info"}


def test_a_stranger_cannot_fill_the_memory_with_names(written: io.StringIO) -> None:
    for number in range(LEVELS_MAX):
        log.set_level(f"x{number}", "info")
    full, again = asked(("PUT", "/quire/loggers/y?level=info"), ("PUT", "/quire/loggers/x1?level=debug"))
    assert (full.status_code, again.status_code) == (400, 200)
