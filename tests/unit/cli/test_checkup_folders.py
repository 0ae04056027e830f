"""The folders of a bookie in `quire doctor` (quire/cli/checkup/folders, leftovers): each planted fault is found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bookie.journal.format import LogMark, encode_last_mark
from quire.cli.checkup import backlog, command, configured, folders, leftovers, machine, verdicts
from quire.cli.checkup.configured import Server
from quire.cli.checkup.folders import Folders
from quire.cli.checkup.verdicts import CheckResult, Grade, Mount
from quire.metadata.bookies import Cookie, encode_cookie

OK, WARNING, BAD = Grade.OK, Grade.WARNING, Grade.BAD
COOKIE = Cookie(
    bookie_id="b:1", journal_directories=("/j",), ledger_directories=("/l",), index_directories=None, instance_id="i"
)
Found = Callable[[], list[tuple[str, Grade, str]]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for pid files in this test's folder alone."""
    for key in [key for key in os.environ if key.startswith("BOOKIE_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("BOOKIE_LOG_DIR", str(tmp_path / "logs"))


@pytest.fixture
def bookie(tmp_path: Path) -> Folders:
    """Folders of a bookie with one journal and two disks, without a fault."""
    made = Folders(
        journals=(tmp_path / "journal",),
        ledgers=(tmp_path / "one", tmp_path / "two"),
        indexes=(tmp_path / "one", tmp_path / "two"),
        usage_full=0.95,
        usage_warn=0.9,
    )
    for folder in made.all:
        (folder / "current").mkdir(parents=True)
        (folder / "current/VERSION").write_bytes(encode_cookie(COOKIE))
    return made


@pytest.fixture
def own_disks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Mount]:
    """Let each folder be on a disk of its own, which the test may change."""
    mounts: dict[str, Mount] = {}

    def mount_of(folder: Path) -> Mount:
        number = len(mounts)
        fresh = Mount(point=f"/disk{number}", kind="ext4", options=frozenset(("rw", "noatime")), device=f"8:{number}")
        return mounts.setdefault(folder.name, fresh)

    monkeypatch.setattr(machine, "mount_of", mount_of)
    monkeypatch.setattr(machine, "space", lambda folder: (50 << 30, 100 << 30, 0, 0))
    monkeypatch.setattr(machine, "sync_times", lambda folder: [0.001])
    return mounts


def troubles(found: Folders) -> list[CheckResult]:
    made = [check for check in folders.examine(found) if check.verdict is not OK]
    assert all(check.remedy for check in made)
    return made


@pytest.mark.usefixtures("own_disks")
def test_a_bookie_without_a_fault_has_none_and_each_of_its_disks_is_examined(bookie: Folders) -> None:
    assert troubles(bookie) == []
    found = list(folders.examine(bookie))
    for name in ("mount", "space", "sync"):
        assert len([check for check in found if check.name == name]) == 3, name
    assert len([check for check in found if check.name == "disks"]) == 2


def test_folders_on_one_disk_are_measured_once_and_named(bookie: Folders, own_disks: dict[str, Mount]) -> None:
    shared = Mount(point="/disk", kind="ext4", options=frozenset(("rw", "noatime")), device="8:1")
    own_disks.update(one=shared, two=shared)
    found = list(folders.examine(bookie))
    assert len([check for check in found if check.name == "sync"]) == 2
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("devices", WARNING)
    assert "one and" in shown.what
    assert "two are on one device (/disk)" in shown.what


@pytest.mark.parametrize(
    ("kind", "options", "verdict"),
    [
        ("ext4", "rw,noatime,nobarrier", BAD),
        ("ext3", "rw,noatime,barrier=0", BAD),
        ("tmpfs", "rw,noatime", BAD),
        ("ext4", "ro,noatime", BAD),
        ("overlay", "rw,noatime", WARNING),
    ],
)
def test_a_mount_that_endangers_the_second_disk_is_found(
    kind: str, options: str, verdict: Grade, bookie: Folders, own_disks: dict[str, Mount]
) -> None:
    own_disks["two"] = Mount(point="/bad", kind=kind, options=frozenset(options.split(",")), device="9:9")
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("mount", verdict)
    assert "two is on /bad" in shown.what


def test_options_of_the_file_system_count_as_those_of_the_mount(tmp_path: Path) -> None:
    """After an error the kernel makes the file system read-only; the mount itself still says rw."""
    table = "22 1 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 ro,nobarrier\n"
    found = machine.mount_of(Path("/srv"), table, tmp_path)
    assert found is not None
    assert found.options >= {"ro", "nobarrier"}


@pytest.mark.parametrize(("used", "verdict"), [(0.5, OK), (0.92, WARNING), (0.95, BAD), (0.99, BAD)])
@pytest.mark.usefixtures("own_disks")
def test_each_disk_is_compared_with_the_thresholds(
    used: float, verdict: Grade, bookie: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def space(folder: Path) -> tuple[int, int, int, int]:
        return (round((1 - used) * 1000) << 30 if folder.name == "two" else 500 << 30), 1000 << 30, 0, 0

    monkeypatch.setattr(machine, "space", space)
    shown = [check for check in folders.examine(bookie) if check.name == "disks" and "two" in check.what]
    assert [check.verdict for check in shown] == [verdict]
    if verdict is not OK:
        assert "diskUsage" in shown[0].what


def test_thresholds_and_folders_are_those_of_the_configuration(tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    text = f"journalDirectories={tmp_path}/j\nledgerDirectories={tmp_path}/l\n"
    text += "metadataServiceUri=zk+hierarchical://h:1/ledgers\nadvertisedAddress=10.0.0.1\n"
    conf.write_text(text)
    found = configured.read(conf, Server.BOOKIE)
    assert (found.usage_full, found.usage_warn) == (0.95, 0.9)
    assert command._folders(None, found).all == (tmp_path / "j", tmp_path / "l")
    conf.write_text(f"{text}diskUsageThreshold=0.8\n")
    found = configured.read(conf, Server.BOOKIE)
    assert (found.usage_full, found.usage_warn) == (0.8, 0.8)


def test_a_slow_sync_of_one_disk_is_named(
    bookie: Folders, own_disks: dict[str, Mount], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "sync_times", lambda folder: [0.7 if folder.name == "journal" else 0.001])
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("sync", BAD)
    assert "journal" in shown.what


@pytest.mark.usefixtures("own_disks")
def test_a_file_from_the_future_shows_a_clock_that_was_set_back(bookie: Folders) -> None:
    path = bookie.journals[0] / "current/1a.txn"
    path.touch()
    os.utime(path, (time.time() + 3600, time.time() + 3600))
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("clock", BAD)
    assert "1a.txn" in shown.what


@pytest.mark.parametrize(
    ("names", "what", "remedy"),
    [
        (("lastId.tmp",), "temporary files of a crash", "None is needed"),
        (("1f.log.compacting", "1f.log.1a.compacted"), "a compaction that was cut", "None is needed"),
        (("locations.REBUILT/",), "whose rebuild was killed", "Run the rebuild again"),
        (("locations.BACKUP-2026-11-28/", "ledgers.PREV-2026/"), "old indexes that a rebuild kept", "rm -r"),
        (("locations.backup/",), "old indexes that a conversion kept", "rm -r"),
    ],
)
@pytest.mark.usefixtures("own_disks")
def test_each_kind_of_leftovers_is_named_with_its_remedy(
    names: tuple[str, ...], what: str, remedy: str, bookie: Folders
) -> None:
    for name in names:
        path = bookie.ledgers[1] / "current" / name
        if name.endswith("/"):
            path.mkdir()
            (path / "000001.sst").write_bytes(bytes(2048))
        else:
            path.write_bytes(b"")
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("leftovers", WARNING)
    assert what in shown.what
    assert all(name.rstrip("/") in shown.what for name in names)
    assert remedy in shown.remedy
    if any(name.endswith("/") for name in names):
        assert "KiB" in shown.what


@pytest.mark.parametrize("name", ["upgradeTmp", "rollbackTmp"])
@pytest.mark.usefixtures("own_disks")
def test_an_upgrade_that_was_killed_is_bad(name: str, bookie: Folders) -> None:
    (bookie.ledgers[0] / name).mkdir()
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("leftovers", BAD)
    assert "again" in shown.remedy


@pytest.mark.usefixtures("own_disks")
def test_files_that_an_upgrade_kept_and_an_old_layout_are_named(bookie: Folders) -> None:
    (bookie.ledgers[0] / "0.log").write_bytes(bytes(100))
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("leftovers", WARNING)
    assert "--finalize" in shown.remedy
    (bookie.ledgers[0] / "current/VERSION").unlink()
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("layout", BAD)
    assert "has layout 1" in shown.what
    (bookie.ledgers[0] / "0.log").unlink()
    (bookie.ledgers[0] / "current/VERSION").write_text("no cookie")
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("layout", BAD)


@pytest.mark.usefixtures("own_disks")
def test_the_index_of_another_storage_is_bad(bookie: Folders) -> None:
    path = bookie.indexes[1] / "current/0/1/1.idx"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"BKLE" + bytes(1020))
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("layout", BAD)
    assert "convert-to-db-storage" in shown.remedy


@pytest.mark.usefixtures("own_disks")
def test_a_stale_pid_file_is_named_and_a_live_one_is_not(bookie: Folders, tmp_path: Path) -> None:
    pid_file = tmp_path / "logs/bookkeeper-bookie.pid"
    pid_file.parent.mkdir()
    pid_file.write_text(f"{os.getpid()}\n")
    [shown] = troubles(bookie)
    assert (shown.name, shown.verdict) == ("leftovers", WARNING)
    assert f"{pid_file} is stale: {os.getpid()} is not the bookie" in shown.what
    environment = {**os.environ, "QUIRE_DAEMON_PID_FILE": str(pid_file)}
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        pid_file.write_text(f"{process.pid}\n")
        assert list(leftovers.pid_files(os.environ)) == []
        process.communicate(b"\n")


def test_a_folder_that_cannot_be_written_is_bad(bookie: Folders, own_disks, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(folder: Path) -> list[float]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine, "sync_times", failing)
    shown = troubles(bookie)
    assert [(check.name, check.verdict) for check in shown] == [("space", BAD)] * 3


def test_the_verdict_about_an_empty_disk_divides_by_nothing() -> None:
    assert verdicts.usage("/d", 0, 0, full=0.95, warn=0.9).verdict is OK


def test_a_journal_that_a_start_would_replay_for_minutes_is_reported(
    bookie: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger folder that failed holds back its mark."""
    monkeypatch.setattr(backlog, "REPLAYED_WARNING_BYTES", 5 << 20)
    current = bookie.journals[0] / "current"
    for file_id in (10, 11, 12):
        (current / f"{file_id:x}.txn").write_bytes(bytes(range(256)) * (2 << 12))

    def judged() -> list[tuple[Grade, str]]:
        found = [each for each in folders.examine(bookie) if each.name == "journal"]
        return [(each.verdict, each.what) for each in found]

    (bookie.ledgers[0] / "current/lastMark").write_bytes(encode_last_mark(LogMark(10, 512)))
    assert judged() == [(WARNING, f"{bookie.journals[0]}: a start replays 5 MiB of journal")]
    (bookie.ledgers[1] / "current/lastMark").write_bytes(encode_last_mark(LogMark(11, 1 << 20)))
    assert judged() == [(OK, f"{bookie.journals[0]}: a start replays 3 MiB of journal")]
