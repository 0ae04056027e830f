"""The scripts of operators on real bookies, ZooKeeper and auto recovery: output, changes and refusals."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from quire.cli.operations.__main__ import main
from quire.ledger import LedgerClient, open_client
from quire.wire.bookkeeper.entry import DigestType
from quire.world.real import real_world
from tests.support.process import wait_until
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Node, Plan

pytestmark = pytest.mark.cluster

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
ENTRIES = 20
LEDGERS = 6


class Operations:
    """A cluster of four bookies and an auto recovery, without a broker: the test writes the ledgers itself."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    @property
    def bookies(self) -> list[Node]:
        return [node for node in self.cluster.nodes(Kind.BOOKIE) if self.cluster.is_alive(node)]

    def run(self, name: str, *words: str) -> tuple[int, str, str]:
        """Run a script; return its exit code, output and errors."""
        out, err = io.StringIO(), io.StringIO()
        code = main([name, "--conf", str(self.cluster.shell_conf), "--timeout", "40", *words], out=out, err=err)
        return code, out.getvalue(), err.getvalue()

    def verified(self) -> dict[str, Any]:
        """Return the findings of verify-replicas for all ledgers."""
        code, out, _ = self.run("verify-replicas", "--json")
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        assert (code == 0) == found["good"]
        return found

    def commands(self, stop: str = "stop") -> list[str]:
        """Return the options --stop and --start, with commands of scripts/cluster."""
        words = f"{sys.executable} -m tools.local_cluster --folder {self.cluster.folder}"
        return ["--stop", f"cd {ROOT} && {words} {stop} {{id}}", "--start", f"cd {ROOT} && {words} start {{id}}"]

    def wipe(self, node: Node) -> str:
        own = node.folder(self.cluster.folder)
        return f"rm -rf {own}/journal {own}/ledgers"

    def write(self, *, count: int = LEDGERS, leave_open: bool = False) -> list[int]:
        async def story(client: LedgerClient) -> list[int]:
            made = []
            for _ in range(count):
                # Confirmed is what all three have: a copy on its way would be found missing.
                writer = await client.create(
                    ensemble_size=3, write_quorum=3, ack_quorum=3, digest_type=DigestType.CRC32C
                )
                writer.append([b"entry %d" % number for number in range(ENTRIES)])
                await writer.wait_confirmed(ENTRIES - 1)
                if not leave_open:
                    await writer.close()
                made.append(writer.ledger_id)
            return made

        return self.with_client(story)

    def with_client(self, story: Callable[[LedgerClient], Awaitable[T]]) -> T:
        async def whole() -> T:
            with trio.fail_after(60):
                async with open_client(real_world(), self.cluster.metadata_uri) as client:
                    return await story(client)

        return trio.run(whole)

    def members(self, ledger_ids: list[int]) -> set[str]:
        async def story(client: LedgerClient) -> set[str]:
            found: set[str] = set()
            for ledger_id in ledger_ids:
                metadata = await client.read_metadata(ledger_id)
                found.update(each for fragment in metadata.fragments for each in fragment.bookies)
            return found

        return self.with_client(story)


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operations]:
    folder = tmp_path_factory.mktemp("operations") / "cluster"
    quick = {
        "openLedgerRereplicationGracePeriod": 500,
        "rwRereplicateBackoffMs": 200,
        "lockReleaseOfFailedLedgerGracePeriod": 1000,
    }
    plan = Plan(bookies=4, brokers=0, recoveries=1, session_timeout_ms=2000, conf={Kind.RECOVERY: quick})
    cluster = LocalCluster.make(folder, plan)
    made = Operations(cluster)
    try:
        cluster.up()
        yield made
        cluster.refresh()
        assert not cluster.errors()
    finally:
        cluster.refresh()
        cluster.abandon()
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "name", ["verify-replicas", "recover-bookie", "decommission-bookie", "replace-disk", "rolling-restart"]
)
def test_every_script_tells_its_words(name, capsys):
    script = (ROOT / "scripts" / name).read_text()
    assert f"-m quire.cli.operations {name} " in script
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"Usage: quire operations {name}" in said
    for option in ("--conf", "--dry-run", "--json"):
        assert option in said


async def misplace(client: LedgerClient, *, ledger_id: int, addresses: list[str]) -> str:
    """Name a bookie without any copy in the metadata of a ledger; return its address."""
    metadata = await client.read_metadata(ledger_id)
    members = metadata.fragments[0].bookies
    stranger = next(address for address in addresses if address not in members)
    await client.replace_members(ledger_id, 0, ENTRIES - 1, {1: (members[1], stranger)})
    return stranger


def test_verify_replicas_reads_every_copy_finds_one_that_is_not_there_and_hands_it_to_auto_recovery(operations):
    ledger_ids = operations.write()
    (still_open,) = operations.write(count=1, leave_open=True)
    found = operations.verified()
    assert found["good"]
    # (Of the open one the bookies do not know yet what is confirmed.)
    assert found["copies"] == LEDGERS * ENTRIES * 3
    assert (found["ledgers"], found["openLedgers"]) == (LEDGERS + 1, 1)
    assert operations.run("verify-replicas", "--dry-run")[1] == f"{LEDGERS + 1} ledgers would be read\n"

    addresses = [each.address for each in operations.bookies]
    stranger = operations.with_client(partial(misplace, ledger_id=ledger_ids[0], addresses=addresses))
    code, out, _ = operations.run("verify-replicas", "--json", "--mark", "--ledger", str(ledger_ids[0]))
    bad, totals = map(json.loads, out.splitlines())
    assert code == 1
    assert bad["badCopies"][0]["bookie"] == stranger
    assert bad["badCopies"][0]["count"] == ENTRIES
    assert totals["faults"] == {"missing": ENTRIES}
    wait_until(lambda: operations.verified()["good"], "auto recovery mends what was marked", 40)
    operations.with_client(lambda client: client.delete(still_open))


def test_verify_replicas_goes_on_where_it_was_cut(operations, tmp_path):
    operations.write()
    whole = operations.verified()
    progress = tmp_path / "progress"
    progress.write_text(
        json.dumps(
            {
                "version": 1,
                "nextLedger": 3,
                "totals": {
                    **dict.fromkeys(("ledgers", "copies"), 1000),
                    **dict.fromkeys(("openLedgers", "bytes", "badLedgers", "badCopies"), 0),
                    "faults": {},
                },
            }
        )
    )
    code, out, err = operations.run("verify-replicas", "--json", "--progress-file", str(progress))
    found = json.loads(out)
    assert code == 0
    assert "continuing with ledger 3; 1000 were read before" in err
    assert found["ledgers"] == 1000 + whole["ledgers"] - 3
    assert not progress.exists()


@pytest.mark.full
def test_rolling_restart_restarts_one_bookie_after_the_other(operations):
    operations.write()
    pids = {node.name: operations.cluster.state.pids[node.name] for node in operations.bookies}
    code, out, err = operations.run("rolling-restart", "--dry-run", *operations.commands())
    assert code == 0, err
    assert out.count("would be restarted") == 4
    named = [node.address for node in operations.bookies[:2]]
    code, out, err = operations.run("rolling-restart", *named, *operations.commands("kill"))
    assert code == 0, err
    assert [line.split()[1] for line in out.splitlines()] == named
    operations.cluster.refresh()
    changed = {name for name, pid in pids.items() if operations.cluster.state.pids[name] != pid}
    assert changed == {node.name for node in operations.bookies[:2]}
    assert operations.verified()["good"]
    code, _, err = operations.run("rolling-restart", "nobody:1", *operations.commands())
    assert code == 1
    assert "not bookies of this cluster: nobody:1" in err


def test_replace_disk_gives_a_bookie_empty_folders_and_what_it_had(operations):
    closed, left_open = operations.write(), operations.write(count=2, leave_open=True)
    bookie = operations.bookies[0]
    assert bookie.address in operations.members([*closed, *left_open])
    old = (bookie.folder(operations.cluster.folder) / "ledgers" / "current" / "VERSION").stat().st_ino
    words = [bookie.address, "--refill", "--wipe", operations.wipe(bookie), *operations.commands()]
    code, out, err = operations.run("replace-disk", "--dry-run", *words)
    assert code == 0, err
    assert "would get again what they had on it" in out
    code, out, err = operations.run("replace-disk", *words)
    assert code == 0, out + err
    assert "every copy is good" in out
    operations.cluster.refresh()
    assert (bookie.folder(operations.cluster.folder) / "ledgers" / "current" / "VERSION").stat().st_ino != old
    assert operations.verified()["good"]


def quire(*words: str | Path) -> tuple[int, str]:
    """Run a command; return its exit code and its output."""
    ran = subprocess.run(
        [sys.executable, "-m", "quire.cli.main", *words], capture_output=True, text=True, check=False, timeout=60
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_a_damaged_bookie_says_so_and_replace_disk_rebuilds_it_from_the_others(operations):
    ledger_ids = operations.write()
    bookie = operations.bookies[1]
    assert bookie.address in operations.members(ledger_ids)
    operations.cluster.kill(bookie)
    current = bookie.folder(operations.cluster.folder) / "ledgers/current/locations/CURRENT"
    current.write_text("MANIFEST-999999\n")
    conf = bookie.conf(operations.cluster.folder)
    code, said = quire("bookie", "--conf", conf)
    assert code == 5, said
    assert f"{current} is damaged" in said
    assert f"quire doctor --conf {conf}" in said
    assert f"scripts/replace-disk {bookie.address}" in said
    code, said = quire("doctor", "--conf", conf)
    assert code == 1, said
    assert f"DAMAGED {current} is damaged" in said
    assert f"scripts/replace-disk {bookie.address}" in said
    words = [bookie.address, "--wipe", operations.wipe(bookie), *operations.commands()]
    code, out, err = operations.run("replace-disk", *words)
    assert code == 0, out + err
    operations.cluster.refresh()
    assert operations.cluster.is_alive(bookie)
    assert bookie.address not in operations.members(ledger_ids)
    assert operations.verified()["good"]


def test_decommission_bookie_takes_one_out_and_refuses_the_next_for_which_there_is_no_place(operations):
    ledger_ids = operations.write()
    bookie = operations.bookies[2]
    stop = operations.commands()[:2]
    code, out, err = operations.run("decommission-bookie", bookie.address, "--dry-run", *stop)
    assert code == 0, err
    assert "would be copied, and the cookie" in out
    code, out, err = operations.run("decommission-bookie", bookie.address, *stop)
    assert code == 0, out + err
    operations.cluster.refresh()
    assert not operations.cluster.is_alive(bookie)
    assert bookie.address not in operations.members(ledger_ids)
    assert operations.verified()["good"]
    code, _, err = operations.run("decommission-bookie", operations.bookies[0].address, *stop)
    assert code == 1
    assert "add a bookie first" in err
    code, _, err = operations.run("decommission-bookie", bookie.address, *stop)
    assert code == 1
    assert "unknown bookie" in err


def test_recover_bookie_gives_what_is_lost_for_good_to_others(operations):
    subprocess.run(
        [sys.executable, "-m", "tools.local_cluster", "--folder", operations.cluster.folder, "add-bookie"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    operations.cluster.refresh()
    (recovery,) = operations.cluster.nodes(Kind.RECOVERY)
    operations.cluster.stop(recovery)  # nobody else may do it
    ledger_ids = operations.write()
    bookie = operations.bookies[0]
    assert bookie.address in operations.members(ledger_ids)
    code, _, err = operations.run("recover-bookie", bookie.address)
    assert code == 1
    assert "Only a stopped bookie can be recovered" in err
    operations.cluster.kill(bookie)
    wait_until(partial(_is_gone, operations, bookie), "its session ends", 40)
    code, out, err = operations.run("recover-bookie", bookie.address, "--dry-run")
    assert code == 0, err
    assert "others for" in out
    assert bookie.address in operations.members(ledger_ids), "a dry run changes nothing"
    code, out, err = operations.run("recover-bookie", bookie.address, "--delete-cookie")
    assert code == 0, out + err
    assert "every copy is good" in out
    assert f"deleted the cookie of {bookie.address}" in err
    assert bookie.address not in operations.members(ledger_ids)


def _is_gone(operations: Operations, bookie: Node) -> bool:
    return operations.run("recover-bookie", bookie.address, "--dry-run")[0] == 0
