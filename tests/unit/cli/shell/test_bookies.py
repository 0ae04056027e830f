"""listbookies, bookieinfo"""

from __future__ import annotations

import pytest

from quire.cli.shell import bookies
from quire.cli.shell.bookies import size_text
from quire.cli.shell.errors import UsageError
from quire.metadata.bookies import BookieServiceInfo, Endpoint, register
from tests.unit.cli.shell.build import with_bookies

pytestmark = pytest.mark.seeded


@pytest.fixture(autouse=True)
def no_name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    async def names(host: str, port: int) -> tuple[str, str]:
        return host, f"name-of-{host}"

    monkeypatch.setattr(bookies, "_names", names)


async def test_bookies_are_listed_by_their_kind() -> None:
    async with with_bookies(count=2) as cluster:
        endpoint = Endpoint(host="10.0.0.9", port=3181)
        info = BookieServiceInfo(endpoints=(endpoint,))
        await register(cluster.store(), "b9", info, read_only=True)
        cluster.stops["b2"].set()
        store = cluster.store()
        watch = store.watch("/ledgers/available/b2")
        while await store.get("/ledgers/available/b2"):
            await watch.next()
        writable = await cluster.run("listbookies", "-rw")
        title, line = writable.out.splitlines()
        port = cluster.port("b1")
        assert title == "ReadWrite Bookies :"
        assert line == f"BookieID:b1, IP:127.0.0.1, Port:{port}, Hostname:name-of-127.0.0.1"
        read_only = await cluster.run("listbookies", "-readonly", "--json")
        assert read_only.values == [{"bookieId": "b9", "ip": "10.0.0.9", "port": 3181, "hostname": "name-of-10.0.0.9"}]
        everybody = await cluster.run("listbookies", "--all", "-h")
        assert everybody.out.splitlines()[0] == "All Bookies :"
        assert everybody.out.splitlines()[2] == "BookieID:b2, IP:UNKNOWN, Port:0, Hostname:UNKNOWN"


async def test_nobody_is_there() -> None:
    async with with_bookies(count=0) as cluster:
        assert (await cluster.run("listbookies", "-rw")).out == "No bookie exists!\n"
        assert (await cluster.run("bookieinfo")).out == "No bookie told its sizes\n"
        assert (await cluster.run("bookieinfo", "--json")).out == ""


@pytest.mark.parametrize("words", [(), ("-rw", "-ro"), ("-h",)])
async def test_one_kind_must_be_named(words: tuple[str, ...]) -> None:
    async with with_bookies(count=0) as cluster:
        with pytest.raises(UsageError, match="give one of") as raised:
            await cluster.run("listbookies", *words)
        assert raised.value.code == 1


async def test_every_bookie_tells_its_sizes_and_who_does_not_is_named() -> None:
    async with with_bookies(count=2) as cluster:
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
