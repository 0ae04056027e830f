"""initnewcluster, metaformat, nukeexistingcluster, whatisinstanceid"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from quire.metadata import bookies
from quire.metadata.ledgers import read_instance_id
from quire.metadata.local.memory import MemoryStore
from tests.unit.cli.shell.build import MemoryCluster

INFO = bookies.BookieServiceInfo(endpoints=(bookies.Endpoint(host="h", port=3181),))


@pytest.fixture
def cluster(tmp_path: Path) -> MemoryCluster:
    made = MemoryCluster(tmp_path)
    made.do(lambda store: store.create("/bk"))
    return made


def instance_id(cluster: MemoryCluster) -> Any:
    return cluster.do(lambda store: read_instance_id(store, cluster.root))


def run_bookie(cluster: MemoryCluster, name: str, *, read_only: bool = False) -> None:
    """Register a bookie permanently: its session stays open."""

    async def main() -> None:
        store = MemoryStore(cluster.tree)
        await bookies.register(store, name, INFO, read_only=read_only, root=cluster.root)

    trio.run(main)


def test_a_new_cluster_is_made_once(cluster: MemoryCluster) -> None:
    ran = cluster.shell("initnewcluster", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.values == [{"metadataServiceUri": cluster.uri, "instanceId": instance_id(cluster)}]
    again = cluster.shell("initnewcluster")
    assert (again.code, again.out) == (1, "")
    assert again.err == "quire shell: there is a cluster at /bk/ledgers already\n"


def test_a_new_cluster_has_the_layout_that_the_uri_names(cluster: MemoryCluster) -> None:
    cluster.conf.write_text("metadataServiceUri=zk+flat://zk1/bk/ledgers\n")
    assert cluster.shell("initnewcluster").code == 0
    node = cluster.do(lambda store: store.get("/bk/ledgers/LAYOUT"))
    assert node.value == b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1"
    # ... and keeps it when it is formatted by somebody who names none
    cluster.conf.write_text("metadataServiceUri=zk+null://zk1/bk/ledgers\n")
    assert cluster.shell("metaformat", "-n", "-f").code == 0
    assert cluster.do(lambda store: store.get("/bk/ledgers/LAYOUT")).value == node.value


def test_a_root_without_a_parent_is_a_failure_not_a_refusal(tmp_path: Path) -> None:
    ran = MemoryCluster(tmp_path).shell("initnewcluster")
    assert ran.code == 255
    assert ran.err == "quire shell: /bk/ledgers cannot be made: its parent /bk does not exist\n"


def test_the_instance_id_is_printed_as_the_original_does(cluster: MemoryCluster) -> None:
    cluster.shell("initnewcluster")
    ran = cluster.shell("whatisinstanceid")
    assert ran.out == f"Metadata Service Uri: {cluster.uri} InstanceId: {instance_id(cluster)}\n"
    assert cluster.shell("whatisinstanceid", "-json").values[0]["instanceId"] == instance_id(cluster)


def test_an_instance_id_that_is_not_there_is_one_line(cluster: MemoryCluster) -> None:
    ran = cluster.shell("whatisinstanceid")
    assert (ran.code, ran.out) == (255, "")
    assert "was never initialised" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_format_forgets_ledgers_and_cookies_only_when_confirmed(cluster: MemoryCluster) -> None:
    cluster.shell("initnewcluster")
    before = instance_id(cluster)
    cluster.do(lambda store: store.create("/bk/ledgers/cookies/b:1", make_parents=True))
    for words, answers, why in (
        ((), "n\n", "not confirmed"),
        ((), "", "not confirmed"),
        (("-f",), "perhaps\nno\n", "not confirmed"),
        (("-n",), "", "only with -force"),
    ):
        ran = cluster.shell("metaformat", *words, answers=answers)
        assert ran.code == 1, (words, answers)
        assert why in ran.err
        assert instance_id(cluster) == before
    assert cluster.shell("metaformat", answers="what?\nyes\n").code == 0
    assert instance_id(cluster) != before
    assert cluster.do(lambda store: store.get("/bk/ledgers/cookies")) is None


def test_a_format_makes_what_is_not_there_without_asking(cluster: MemoryCluster) -> None:
    ran = cluster.shell("metaformat", "--json")
    assert ran.code == 0
    assert ran.values[0]["instanceId"] == instance_id(cluster)


def test_a_format_is_refused_while_bookies_run_and_names_them(cluster: MemoryCluster) -> None:
    cluster.shell("initnewcluster")
    before = instance_id(cluster)
    run_bookie(cluster, "b:1")
    run_bookie(cluster, "b:2", read_only=True)
    for words, answers in (((), "yes\n"), (("-nonInteractive",), "")):
        ran = cluster.shell("metaformat", *words, answers=answers)
        assert ran.code == 1
        assert "has bookies running: b:1, b:2." in ran.err
        assert instance_id(cluster) == before
    assert cluster.shell("metaformat", "-nonInteractive", "-force").code == 0
    assert instance_id(cluster) != before


def test_many_running_bookies_are_not_all_named(cluster: MemoryCluster) -> None:
    cluster.shell("initnewcluster")
    for number in range(12):
        run_bookie(cluster, f"b:{number:02}")
    assert "b:08, b:09 and 2 more." in cluster.shell("metaformat", "-n").err


def test_a_cluster_is_deleted_by_its_instance_id(cluster: MemoryCluster) -> None:
    cluster.shell("initnewcluster")
    wrong = cluster.shell("nukeexistingcluster", "-p", "/bk/ledgers", "-i", "other")
    assert wrong.code == 1
    assert f"has the instance id {instance_id(cluster)}, not other" in wrong.err
    ran = cluster.shell("nukeexistingcluster", "-p", "/bk/ledgers", "-i", instance_id(cluster), "--json")
    assert (ran.code, ran.values) == (0, [{"root": "/bk/ledgers", "deleted": True}])
    assert cluster.do(lambda store: store.children("/bk")) == []
    gone = cluster.shell("nukeexistingcluster", "-p", "/bk/ledgers", "-f", "--json")
    assert (gone.code, gone.values) == (0, [{"root": "/bk/ledgers", "deleted": False}])


def test_a_cluster_is_not_deleted_by_mistake(cluster: MemoryCluster) -> None:
    cluster.shell("initnewcluster")
    for words, why in (
        (("-p", "/bk/ledgers"), "either -instanceid or -force"),
        (("-p", "/bk/ledgers", "-f", "-i", "x"), "either -instanceid or -force"),
        (("-p", "/other", "-f"), "-zkledgersrootpath is /other, the configuration says /bk/ledgers"),
        (("-f",), "-zkledgersrootpath is missing"),
    ):
        ran = cluster.shell("nukeexistingcluster", *words)
        assert ran.code == 1, words
        assert why in ran.err
    run_bookie(cluster, "b:1")
    forced = cluster.shell("nukeexistingcluster", "-p", "/bk/ledgers", "-f")
    assert forced.code == 1
    assert "has bookies running: b:1" in forced.err
    assert instance_id(cluster)
