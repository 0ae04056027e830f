"""bookieinfo"""

from __future__ import annotations

from functools import partial

import pytest

from quire.cli.shell.metadata.bookies import size_text
from quire.metadata.bookies import BookieServiceInfo, Endpoint, register
from tests.support.waiting import until
from tests.unit.cli.shell.build import with_bookies

pytestmark = pytest.mark.seeded


async def test_every_bookie_tells_its_sizes_and_who_does_not_is_named() -> None:
    async with with_bookies(count=2) as cluster:
        for name in cluster.bookies:  # both are on one disk
            await until(partial(cluster.world.disk.exists, f"/{name}/ledgers/reserve"))
        gone = BookieServiceInfo(endpoints=(Endpoint(host="127.0.0.1", port=1),))
        await register(cluster.store(), "b3", gone)
        ran = await cluster.run("bookieinfo", "--json")
        assert ran.code == 0
        first, second, both = ran.values
        assert (first["bookieId"], second["bookieId"]) == ("b1", "b2")
        assert first["total"] >= first["free"] > 0
        free, total = first["free"] + second["free"], first["total"] + second["total"]
        assert both == {"clusterFree": free, "clusterTotal": total}
        assert "bookie b3: " in ran.err
        lines = (await cluster.run("bookieinfo")).out.splitlines()
        assert lines[0] == "Free disk space info:"
        assert lines[1].endswith(f": \tFree: {size_text(first['free'])}\tTotal: {size_text(first['total'])}")
        assert lines[3] == f"Total free disk space in the cluster:\t{size_text(free)}"
        assert lines[4] == f"Total disk capacity in the cluster:\t{size_text(total)}"


def test_sizes_are_cut_not_rounded() -> None:
    assert size_text(999) == "999"
    assert size_text(1000) == "1000(1KB)"
    assert size_text(70_694_801_408) == "70694801408(70.694GB)"
    assert size_text(270_999_999_999) == "270999999999(270.999GB)"
    assert size_text(1_050_000) == "1050000(1.05MB)"
