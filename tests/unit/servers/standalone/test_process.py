"""quire.servers.standalone.process"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie, open_bookie
from bookie.errors import StorageFailedError
from quire.servers.addresses import Addresses
from quire.servers.standalone import process as standalone
from quire.servers.standalone.config import STANDALONE
from quire.servers.standalone.process import run_standalone
from quire.world.doors import World


async def test_a_server_whose_disk_cannot_be_trusted_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bookies: list[Bookie] = []

    @asynccontextmanager
    async def opened(*given: Any) -> AsyncGenerator[Bookie, None]:
        async with open_bookie(*given) as bookie:
            bookies.append(bookie)
            yield bookie

    monkeypatch.setattr(standalone, "open_bookie", opened)

    def ready(_: Addresses) -> None:
        bookies[0].failed.set()

    config, stop = STANDALONE.build(), trio.Event()
    with pytest.raises(ExceptionGroup) as caught, trio.fail_after(60):
        await run_standalone(world, config, data_dir="/data", ready=ready, stop=stop, http=False)
    assert caught.group_contains(StorageFailedError)
