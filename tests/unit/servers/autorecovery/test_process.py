"""`quire autorecovery`: the keys that it reads from a bk_server.conf, and its ends."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.errors import IncompatibleUnderreplicationError
from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.autorecovery.process import exit_code, serve_autorecovery
from quire.servers.errors import InternalError, PortError
from quire.servers.process import ending_at_faults
from quire.service.errors import ConfigError
from quire.world.doors import World
from quire.world.unwrap import leaves


def test_exit_codes_are_the_originals() -> None:
    assert exit_code(ExceptionGroup("", [MetadataUnavailableError("away"), SessionExpiredError("gone")])) == 3
    assert exit_code(IncompatibleUnderreplicationError("newer")) == 2
    assert exit_code(OSError("in use")) == 2
    assert exit_code(PortError("httpServerPort=8000: in use")) == 2
    assert exit_code(ConfigError("wrong")) == 1
    assert exit_code(AssertionError("our mistake")) is None


@pytest.mark.expect_error("internal error, the server ends")
async def test_what_a_callback_raises_ends_auto_recovery_with_a_reason(world: World) -> None:
    def boom() -> None:
        raise KeyError("an event")

    async def serve() -> None:
        store = MemoryStore(MemoryTree())
        await store.create("/ledgers/INSTANCEID", b"an instance", make_parents=True)
        await store.create("/ledgers/available/readonly", b"", make_parents=True)
        async with ending_at_faults(world.faults) as nursery:
            serving = partial(
                serve_autorecovery, world, store, AutoRecoveryConfig(), name="me", root="/ledgers", stop=trio.Event()
            )
            nursery.start_soon(serving)
            await trio.sleep(10)
            world.faults.call("an event", boom)
            await trio.sleep(600)

    with pytest.raises(ExceptionGroup) as raised:
        await serve()
    (error,) = leaves(raised.value)
    assert isinstance(error, InternalError)
    assert exit_code(raised.value) == 2
