"""Commands on the folders of a stopped bookie, on folders that Apache BookKeeper 4.17.3 wrote."""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
import trio

from quire.cli.shell.arguments import parse
from quire.cli.shell.context import Shell
from quire.cli.shell.main import COMMANDS as SHELL_COMMANDS
from quire.cli.shell.main import run_shell
from quire.cli.shell.output import Output
from quire.metadata.bookies import BookieServiceInfo, Endpoint, decode_cookie, register, write_cookie
from quire.metadata.local.memory import MemoryStore
from quire.metadata.store import MetadataStore
from quire.servers.cluster_config import SHELL, ClusterConfig
from quire.world.doors import DiskLock, World
from quire.world.real import real_world
from tests.support.killing import Fuse, Killed, store_with_fuse, with_fuse
from tests.unit.cli.shell.build import MemoryCluster
from tests.unit.cli.shell.offline_rig import CURRENT, DB, contents, folders, rows, shell

__all__ = ["folders"]
pytestmark = pytest.mark.usefixtures("bookie_folders")
INFO = BookieServiceInfo(endpoints=(Endpoint(host="h", port=3181),))


@pytest.fixture
def locked() -> Iterator[DiskLock]:
    """Hold the lock of one folder, as a running bookie does."""
    lock = real_world().disk.lock(str(Path("bk1/ledgers/quire.lock").absolute()))
    yield lock
    lock.release()


COMMANDS = (
    "localconsistencycheck",
    "convert-to-db-storage",
    "convert-to-interleaved-storage",
    "regenerate-interleaved-storage-index-file -l 0 -password golden",
    "rebuild-db-ledger-locations-index",
    "rebuild-db-ledgers-index",
    "bookieformat -n -f",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_running_bookie_is_left_alone(words: str, locked: DiskLock) -> None:
    before = contents()
    ran = shell(*words.split())
    assert ran.code == 1
    assert "a bookie runs on bk1/ledgers: stop it first; nothing was changed" in ran.err
    assert contents() == before


@pytest.mark.parametrize("words", COMMANDS[1:3])
def test_an_index_that_another_process_has_open_is_left_alone(words: str) -> None:
    """A bookie of the original takes no lock of ours, but RocksDB does."""
    held = real_world().key_value.open(str(CURRENT / "ledgers"))
    try:
        ran = shell(*words.split())
    finally:
        held.close()
    assert ran.code == 1
    assert "stop the bookie first" in ran.err


@pytest.mark.parametrize("words", COMMANDS)
def test_a_bookie_of_the_original_is_known_by_its_open_files(words: str) -> None:
    """It takes no lock, and has no RocksDB with its other storages."""
    before = contents()
    holds = "import sys; f = open(sys.argv[1], 'rb'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holds, CURRENT / "0.log"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        ran = shell(*words.split())
        process.communicate(b"")
    assert ran.code == 1
    assert f"process {process.pid} (" in ran.err
    assert "0.log open: stop it first; nothing was changed" in ran.err
    assert contents() == before


@pytest.mark.parametrize("words", COMMANDS)
def test_a_bookie_of_the_original_is_known_by_its_port(words: str) -> None:
    before = contents()
    with socket.socket() as served:
        served.bind(("127.0.0.1", 0))
        served.listen()
        conf = Path("bk1.conf")
        conf.write_text(conf.read_text().replace("bookiePort=3281", f"bookiePort={served.getsockname()[1]}"))
        ran = shell(*words.split())
    assert ran.code == 1
    assert "the address of this bookie: stop it first; nothing was changed" in ran.err
    assert contents() == before


# --- localconsistencycheck


def test_every_row_leads_to_its_entry() -> None:
    ran = shell("localconsistencycheck")
    assert (ran.code, ran.out) == (0, "=== Performing local consistency check ===\n=== Check passed ===\n")


def test_a_row_that_leads_elsewhere_and_a_damaged_entry_are_named() -> None:
    log = CURRENT / "0.log"
    data = bytearray(log.read_bytes())
    # Entry 0 of ledger 2 is at 3191.
    data[3191 + 15] ^= 1
    at = int.from_bytes(rows("locations")[bytes(8) + (1).to_bytes(8, "big")], "big")
    assert at >> 32 == 0
    data[at + 20] ^= 1
    log.write_bytes(data)
    ran = shell("localconsistencycheck")
    assert ran.code == 1
    assert ran.out.splitlines()[1:] == [
        "=== Check returned errors: ===",
        "Ledger 0, entry 1: 0.log: entry 0:1 does not match its digest",
        "Ledger 2, entry 0: 0.log: another entry at 3187, where 2:0 should be",
    ]
    values = shell("localconsistencycheck", "-json").values
    assert values[-1] == {"passed": False, "entries": len(rows("locations")), "errors": 2}


# --- files


def test_files_are_listed_without_those_of_rocksdb() -> None:
    root = Path.cwd()
    ran = shell("listfilesondisc", "-txn", "-log", "-idx")
    assert ran.out == (
        "--------- Printing the list of Journal Files ---------\n"
        f"{root}/bk1/journal/current/1a1fdbcafc3.txn\n"
        f"{root}/bk1/journal/current/1a1fdbcafc4.txn\n"
        "\n"
        "--------- Printing the list of EntryLog/Ledger Files ---------\n"
        f"{root}/bk1/ledgers/current/0.log\n"
        f"{root}/bk1/ledgers/current/1.log\n"
        f"{root}/bk1/ledgers/current/2.log\n"
        "\n"
        "--------- Printing the list of Index Files ---------\n"
        "\n"
    )
    assert shell("listfilesondisc").out == ran.out
    assert shell("convert-to-interleaved-storage").code == 0
    found = [value["file"] for value in shell("listfilesondisc", "-idx", "-json").values]
    assert f"{root}/bk1/ledgers/current/f2/0/12a05f200.idx" in found
    assert len(found) == 9


# --- beginning anew


def test_a_format_asks_and_leaves_empty_folders() -> None:
    before = contents()
    ran = shell("bookieformat", answers="n\n")
    assert (ran.code, "not confirmed; nothing was changed" in ran.err) == (1, True)
    ran = shell("bookieformat", "-n")
    assert (ran.code, "only with -force" in ran.err) == (1, True)
    assert contents() == before
    ran = shell("bookieformat", answers="y\n")
    assert ran.out == "Bookie format completed successfully\n"
    assert contents() == {}
    assert (Path("bk1/journal").is_dir(), Path("bk1/ledgers").is_dir()) == (True, True)
    assert shell("bookieformat", "-n").code == 0, "there is nothing left to ask about"


class Clustered:
    """The folders, and a cluster that knows their bookie."""

    def __init__(self, folder: Path) -> None:
        self.cluster = MemoryCluster(folder, root="/ledgers")
        self.cluster.do(lambda store: store.create("/bk"))
        text = (DB / "bk1.conf").read_text()
        text = re.sub(r"metadataServiceUri=.*", f"metadataServiceUri={self.cluster.uri}", text)
        self.cluster.conf.write_text(text)
        assert self.cluster.shell("initnewcluster").code == 0
        self.cookie = decode_cookie(Path("bk1/journal/current/VERSION").read_bytes())
        self.id = self.cookie.bookie_id

    def stamp(self) -> None:
        self.cluster.do(lambda store: write_cookie(store, self.cookie, None))

    def register(self, name: str) -> None:
        """Register a bookie permanently: its session stays open."""
        self.cluster.do(lambda store: register(MemoryStore(self.cluster.tree), name, INFO))


@pytest.fixture
def clustered(tmp_path: Path) -> Clustered:
    return Clustered(tmp_path)


def test_a_format_with_the_cookie_lets_a_new_bookie_start(clustered: Clustered) -> None:
    clustered.stamp()
    shell = clustered.cluster.shell
    ran = shell("initbookie")
    assert (ran.code, "JournalDir bk1/journal is not empty" in ran.err) == (1, True)
    assert shell("bookieformat", "-n", "-f").code == 0
    ran = shell("initbookie")
    assert (ran.code, "has a cookie in the cluster" in ran.err) == (1, True)
    ran = shell("bookieformat", "-n", "-f", "-d")
    assert (ran.code, f"deleted the cookie of {clustered.id}" in ran.err) == (0, True)
    assert shell("initbookie").out == f"Bookie {clustered.id} can start as a new one\n"
    clustered.register(clustered.id)
    ran = shell("initbookie")
    assert (ran.code, "is registered: stop it first" in ran.err) == (1, True)


async def create_two(store: MemoryStore) -> None:
    for ledger_id in (2, 77):
        await store.create(f"/ledgers/00/0000/L{ledger_id:04}", b"", make_parents=True)


def test_ledgers_of_a_log_that_were_not_deleted_are_active(clustered: Clustered) -> None:
    shell = clustered.cluster.shell
    assert shell("activeledgers", "-l", "0").out == "No active ledgers on log file 0\n"

    clustered.cluster.do(create_two)
    assert shell("activeledgers", "-l", "0", "-t", "5000").out == "Active ledgers on entry log 0 as follow:\n2 \n"
    assert [value["ledgerId"] for value in shell("activeledgers", "-l", "0", "-json").values] == [2]
    ran = shell("activeledgers", "-l", "99")
    assert (ran.code, "there is no file 63.log" in ran.err) == (255, True)


# --- updatecookie


def test_cookies_are_listed_and_deleted(clustered: Clustered) -> None:
    clustered.stamp()
    shell = clustered.cluster.shell
    root = Path.cwd()
    ran = shell("updatecookie", "-l")
    assert ran.out.splitlines() == [
        f"Listing local Cookie Files of Bookie: {clustered.id}",
        f"{root}/bk1/journal/current/VERSION",
        f"{root}/bk1/ledgers/current/VERSION",
        f"/ledgers/cookies/{clustered.id}",
    ]
    ran = shell("updatecookie", "-d", answers="n\nn\n")
    assert (ran.code, ran.out.count("Skipping deleting")) == (0, 2)
    clustered.register(clustered.id)
    ran = shell("updatecookie", "-delete", "force")
    assert (ran.code, "is registered" in ran.err) == (1, True)
    assert Path("bk1/ledgers/current/VERSION").exists()
    clustered.cluster.do(lambda store: store.delete(f"/ledgers/available/{clustered.id}"))
    assert shell("updatecookie", "-delete", "force").code == 0
    assert shell("updatecookie", "-l").out.splitlines() == [
        f"No local cookies for Bookie: {clustered.id}",
        f"No cookie for {clustered.id} in metadata store",
    ]


def test_new_empty_folders_are_added_to_the_cookie_and_others_are_refused(clustered: Clustered) -> None:
    clustered.stamp()
    conf = clustered.cluster.conf
    text = conf.read_text()
    shell = clustered.cluster.shell
    assert shell("updatecookie", "-e").out == "The cookie has all folders of the configuration already\n"
    for directories, why in (
        ("bk1/new,bk1/ledgers", "must come first"),
        ("bk1/new", "must come first"),
    ):
        conf.write_text(re.sub(r"ledgerDirectories=.*", f"ledgerDirectories={directories}", text))
        ran = shell("updatecookie", "-e")
        assert (ran.code, why in ran.err) == (1, True)
    conf.write_text(re.sub(r"ledgerDirectories=.*", "ledgerDirectories=bk1/ledgers,bk1/new", text))
    Path("bk1/new/current").mkdir(parents=True)
    Path("bk1/new/current/0.log").touch()
    ran = shell("updatecookie", "-e")
    assert (ran.code, "bk1/new/current is not empty and has no cookie" in ran.err) == (1, True)
    Path("bk1/new/current/0.log").unlink()
    assert shell("updatecookie", "-e").code == 0
    stored = json.loads(shell("cookie_get", clustered.id, "-json").out)
    assert stored["ledgerDirs"][1].endswith("bk1/new")
    versions = {Path(f"bk1/{name}/current/VERSION").read_bytes() for name in ("journal", "ledgers", "new")}
    assert len(versions) == 1
    assert list(decode_cookie(versions.pop()).ledger_directories) == stored["ledgerDirs"]


def named_by_address(clustered: Clustered, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Give the bookie the id of its address; return it, and the id of its name."""
    monkeypatch.setattr("socket.gethostbyname", lambda name: "10.1.2.3")
    monkeypatch.setattr("socket.getfqdn", lambda: "one.example.org")
    conf = clustered.cluster.conf
    text = re.sub(r"(advertisedAddress|listeningInterface)=.*\n", "", conf.read_text())
    port = int(clustered.id.rpartition(":")[2])
    old, new = f"10.1.2.3:{port}", f"one.example.org:{port}"
    conf.write_text(text)
    for path in ("journal", "ledgers"):
        version = Path(f"bk1/{path}/current/VERSION")
        version.write_text(version.read_text().replace(clustered.id, old))
    clustered.cookie = decode_cookie(Path("bk1/journal/current/VERSION").read_bytes())
    clustered.stamp()
    return old, new


def test_a_bookie_gets_the_id_of_its_name(clustered: Clustered, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = named_by_address(clustered, monkeypatch)
    conf = clustered.cluster.conf
    text = conf.read_text()
    shell = clustered.cluster.shell
    ran = shell("updatecookie", "-b", "hostname")
    assert (ran.code, "set useHostNameAsBookieID=true first" in ran.err) == (255, True)
    conf.write_text(f"{text}useHostNameAsBookieID=true\n")
    ran = shell("updatecookie", "-b", "hostname")
    assert (ran.code, ran.out) == (
        0,
        f"Bookie {old} is {new} now. Its ledgers name it by the old id: run updateledgers -bookieId hostname\n",
    )
    for path in ("journal", "ledgers"):
        assert decode_cookie(Path(f"bk1/{path}/current/VERSION").read_bytes()).bookie_id == new
    assert shell("cookie_get", new).code == 0
    assert shell("cookie_get", old).code == 255


class Killing:
    """Runs updatecookie, killed at each of its changes, and then again to its end."""

    def __init__(self, clustered: Clustered) -> None:
        self.clustered = clustered
        shutil.copytree("bk1", "made")
        self.tree = deepcopy(clustered.cluster.tree)

    def cases(self, *words: str) -> Iterator[int]:
        """Yield after each case; the last is one without a kill."""
        for changes in range(100):
            shutil.rmtree("bk1")
            shutil.copytree("made", "bk1")
            self.clustered.cluster.tree = deepcopy(self.tree)
            killed = self._killed_after(changes, words)
            if killed:
                ran = self.clustered.cluster.shell("updatecookie", *words)
                assert ran.code == 0, (changes, ran.err)
            yield changes
            if not killed:
                assert changes >= 4
                return
        raise AssertionError("it never came to its end")

    def _killed_after(self, changes: int, words: tuple[str, ...]) -> bool:
        fuse = Fuse(changes)

        async def open_store(world: World, config: ClusterConfig) -> MetadataStore:
            return store_with_fuse(MemoryStore(self.clustered.cluster.tree), fuse)

        shell = Shell(
            world=with_fuse(real_world(), fuse),
            config=SHELL.load(self.clustered.cluster.conf),
            output=Output(io.StringIO(), io.StringIO(), as_json=False),
            ask=lambda question: False,
            open_store=open_store,
        )
        command = SHELL_COMMANDS["updatecookie"]
        try:
            trio.run(command.run, shell, parse(command.options, words, operands=command.operands))
        except Killed:
            return True
        return False


def test_an_expansion_that_is_killed_at_any_step_is_finished_by_the_next_call(clustered: Clustered) -> None:
    clustered.stamp()
    conf = clustered.cluster.conf
    conf.write_text(re.sub(r"ledgerDirectories=.*", "ledgerDirectories=bk1/ledgers,bk1/new", conf.read_text()))
    for changes in Killing(clustered).cases("-e"):
        stored = json.loads(clustered.cluster.shell("cookie_get", clustered.id, "-json").out)
        versions = {Path(f"bk1/{name}/current/VERSION").read_bytes() for name in ("journal", "ledgers", "new")}
        assert len(versions) == 1, changes
        assert list(decode_cookie(versions.pop()).ledger_directories) == stored["ledgerDirs"]
        assert len(stored["ledgerDirs"]) == 2


def test_a_change_of_the_id_that_is_killed_at_any_step_is_finished_by_the_next_call(
    clustered: Clustered, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = named_by_address(clustered, monkeypatch)
    clustered.cluster.conf.write_text(f"{clustered.cluster.conf.read_text()}useHostNameAsBookieID=true\n")
    for changes in Killing(clustered).cases("-b", "hostname"):
        for path in ("journal", "ledgers"):
            assert decode_cookie(Path(f"bk1/{path}/current/VERSION").read_bytes()).bookie_id == new, changes
        assert clustered.cluster.shell("cookie_get", new).code == 0
        assert clustered.cluster.shell("cookie_get", old).code == 255


# --- configuration of a local cluster


def test_a_local_bookie_is_found_by_its_address(tmp_path: Path) -> None:
    (tmp_path / "confs").mkdir()
    shutil.copy("bk1.conf", tmp_path / "confs/127.0.0.1:3181.conf")
    out, err = io.StringIO(), io.StringIO()
    environment = {"LOCALBOOKIES_CONFIG_DIR": str(tmp_path / "confs")}
    words = ["-localbookie", "127.0.0.1:3181", "lastmark"]
    assert run_shell(words, out=out, err=err, environment=environment) == 0
    assert out.getvalue().startswith("LastLogMark : Journal Id")
    assert run_shell(["-localbookie", "h:1", "lastmark"], out=out, err=err, environment=environment) == 255
    assert "h:1.conf; the local bookies are 127.0.0.1:3181" in err.getvalue()
    assert run_shell(["-localbookie", "lastmark"], out=out, err=err, environment=environment) == 255
    assert "baseconf.conf" in err.getvalue()
