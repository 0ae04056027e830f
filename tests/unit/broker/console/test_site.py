"""The console of a server that has it off (`broker.console.site`)."""

from __future__ import annotations

from typing import Any

import httpx2
import trio

from broker.console.config import ConsoleOptions
from broker.console.site import console_door, console_routes
from quire.service.http import Health, make_app
from quire.service.metrics import Metrics


async def test_without_a_console_there_are_no_pages_and_no_data_and_nothing_is_followed() -> None:
    nothing: Any = None
    off = ConsoleOptions(enabled=False)
    routes, door = console_routes(off, nothing, nothing), console_door(off, nothing, nothing)
    app = make_app(Metrics(), Health(is_ready=lambda: True, check=trio.lowlevel.checkpoint), routes, [*door])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        for path in ("/", "/console", "/console/", "/console/app.js", "/console/api/whoami", "/console/api/topics"):
            found = await client.get(path, headers={"Accept": "text/html", "Quire-Console": "1"})
            assert found.status_code == 404, path
