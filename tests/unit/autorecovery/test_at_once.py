from __future__ import annotations

from functools import partial

import pytest
import trio

from autorecovery.at_once import RETRY_S, first_of, until_available
from quire.metadata.errors import MetadataUnavailableError


async def test_the_first_failure_ends_all_and_comes_as_it_is() -> None:
    async def job(item: int) -> None:
        await trio.sleep(item)
        if item == 2:
            raise KeyError(item)

    with pytest.raises(KeyError):
        await first_of(partial(job, 2), trio.sleep_forever, name="jobs")


async def test_the_first_that_ends_cancels_the_others() -> None:
    await first_of(partial(trio.sleep, 2), trio.sleep_forever, partial(trio.sleep, 5), name="jobs")
    assert trio.current_time() == pytest.approx(2)


async def test_a_call_is_made_again_until_the_service_can_be_reached() -> None:
    tries = 0

    async def call() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise MetadataUnavailableError("away")
        return "here"

    assert await until_available(call) == "here"
    assert trio.current_time() == pytest.approx(2 * RETRY_S)
