"""`quire shell` on a real ZooKeeper and real bookies, one of which is killed."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from quire.cli.shell.main import run_shell
from quire.ledger import open_client
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess
from tests.support.server import free_port
from tests.support.zookeeper import opened, own_root, shared_server
from tests.unit.cli.shell.build import Ran

pytestmark = pytest.mark.cluster

COMMAND_S = 60.0
DEADLINE_S = 20.0


class Cluster:
    """A ZooKeeper chroot of its own and bookies as processes, each in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        server = shared_server()
        self.root = own_root()
        self.uri = f"zk+hierarchical://127.0.0.1:{server.port}{self.root}/ledgers"
        self.bookies: dict[str, BookieProcess] = {}
        self.conf = self._bookie("shell").conf

        async def make_parent() -> None:
            async with opened(server.config(self.root)):
                pass

        trio.run(make_parent)

    def _bookie(self, name: str) -> BookieProcess:
        settings = {"allowLoopback": "true", "flushInterval": 100}
        return BookieProcess(self.folder / name, self.uri, **settings)

    def start_bookie(self) -> str:
        bookie = self._bookie(f"bookie-{len(self.bookies)}").start()
        self.bookies[bookie.id] = bookie
        return bookie.id

    def conf_of(self, bookie_id: str) -> Path:
        return self.bookies[bookie_id].conf

    def shell(self, *words: str, answers: str = "", conf: Path | None = None) -> Ran:
        """Run a command in this process: starting Python for each would take most of the time."""
        out, err = io.StringIO(), io.StringIO()
        given = ["-conf", str(conf or self.conf), *words]
        code = run_shell(given, out=out, err=err, stdin=io.StringIO(answers), environment={})
        return Ran(code, out.getvalue(), err.getvalue())

    def values(self, *words: str, conf: Path | None = None) -> list[dict[str, Any]]:
        ran = self.shell(*words, "--json", conf=conf)
        assert ran.code == 0, ran.err
        return ran.values

    def write_ledger(self, count: int) -> int:
        async def write() -> int:
            async with open_client(real_world(), self.uri) as client:
                writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
                for number in range(count):
                    await writer.write(b"entry %d" % number)
                await writer.close()
                return writer.ledger_id

        return trio.run(write)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        for bookie in made.bookies.values():
            bookie.kill()
    for bookie in made.bookies.values():
        bookie.check_log()


def test_a_cluster_from_its_first_command_to_its_last(cluster: Cluster) -> None:
    assert cluster.shell("initnewcluster").code == 0
    assert cluster.shell("initnewcluster").code == 1
    (instance,) = cluster.values("whatisinstanceid")
    bookies = sorted(cluster.start_bookie() for _ in range(3))

    # --- who is there
    listed = cluster.shell("listbookies", "-rw").out.splitlines()
    assert listed[0] == "ReadWrite Bookies :"
    assert [line.partition(", ")[0] for line in listed[1:]] == [f"BookieID:{bookie}" for bookie in bookies]
    *infos, total = cluster.values("bookieinfo")
    assert [info["bookieId"] for info in infos] == bookies
    assert total["clusterTotal"] == sum(info["total"] for info in infos) > 0

    # --- is it fit for work
    assert cluster.values("simpletest", "-n", "200")[0]["passed"]
    assert cluster.values("bookiesanity", conf=cluster.conf_of(bookies[1]))[0]["bookieId"] == bookies[1]
    assert cluster.shell("listledgers").out == ""

    # --- ledgers
    ledger_id = cluster.write_ledger(20)
    ledger = str(ledger_id)
    (found,) = cluster.values("listledgers", "-m", "-bookieid", bookies[0])
    assert (found["ledgerId"], found["metadata"]["lastEntryId"]) == (ledger_id, 19)
    assert "state=CLOSED" in cluster.shell("ledgermetadata", "-ledgerid", ledger).out
    read = cluster.shell("readledger", "-l", ledger, "-fe", "18", "-m").out.splitlines()
    assert read == [
        f"--------- Lid={ledger}, Eid=18, EntrySize=8 ---------",
        "entry 18",
        f"--------- Lid={ledger}, Eid=19, EntrySize=8 ---------",
        "entry 19",
    ]
    assert len(cluster.values("readledger", "-l", ledger, "-b", bookies[2])) == 20

    # --- the files of a bookie that is running
    local = cluster.conf_of(bookies[0])
    deadline = time.monotonic() + DEADLINE_S
    while len(indexed := cluster.values("ledger", ledger, conf=local)) < 20:
        assert time.monotonic() < deadline, f"{len(indexed)} entries are in the index"
    (mark,) = cluster.values("lastmark", conf=local)
    records = cluster.values("readjournal", mark["file"], conf=local)
    assert [
        record["entryId"] for record in records if record["ledgerId"] == ledger_id and record["entryId"] >= 0
    ] == list(range(20))
    logged = cluster.values("readlog", "-l", ledger, str(indexed[0]["logId"]), conf=local)
    assert [entry["offset"] + 4 for entry in logged] == [row["position"] for row in indexed]

    # --- what would lose data is refused while bookies are there
    for words in (("metaformat", "-n"), ("nukeexistingcluster", "-p", f"{cluster.root}/ledgers", "-f")):
        refused = cluster.shell(*words)
        assert (refused.code, all(bookie in refused.err for bookie in bookies)) == (1, True), refused.err
    assert cluster.values("whatisinstanceid") == [instance]

    # --- a bookie is killed: the ledger is read from the others, and its cookie stays
    cluster.bookies[bookies[0]].kill()
    assert len(cluster.values("readledger", "-l", ledger)) == 20
    lost = cluster.shell("readledger", "-l", ledger, "-b", bookies[0], "-le", "1")
    assert (lost.code, len(lost.err.splitlines())) == (255, 2)
    deadline = time.monotonic() + DEADLINE_S
    while len(cluster.values("listbookies", "-rw")) != 2:
        assert time.monotonic() < deadline, "the killed bookie is still registered"
    assert cluster.shell("simpletest", "-e", "3", "-w", "3", "-n", "1").code == 255
    assert [bookie["bookieId"] for bookie in cluster.values("listbookies", "-a")] == bookies
    assert f'bookieHost: "{bookies[0]}"' in cluster.shell("cookie_get", bookies[0]).out

    # --- the end
    assert cluster.shell("deleteledger", "-l", ledger, answers="y\n").code == 0
    assert cluster.shell("listledgers").out == ""
    for bookie in bookies[1:]:
        assert cluster.bookies[bookie].stop() == 0
    root = f"{cluster.root}/ledgers"
    assert cluster.shell("nukeexistingcluster", "-p", root, "-i", "wrong").code == 1
    assert cluster.shell("nukeexistingcluster", "-p", root, "-i", instance["instanceId"]).code == 0
    gone = cluster.shell("whatisinstanceid")
    assert (gone.code, len(gone.err.splitlines())) == (255, 1)


def test_a_cluster_that_is_not_reached_is_one_line_in_the_time_that_was_set(tmp_path: Path) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text(f"metadataServiceUri=zk+hierarchical://127.0.0.1:{free_port()}/ledgers\nzkTimeout=500\n")
    command = [sys.executable, "-m", "quire.cli.main", "shell", "-conf", str(conf), "listledgers"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_S)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (255, "", 1)
    assert ran.stderr.startswith("quire shell: ZooKeeper does not answer")
