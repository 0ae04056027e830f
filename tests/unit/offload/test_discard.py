"""quire/offload/folder.py: files of ledgers that a topic has no more are removed, and no others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from quire.offload import folder
from quire.offload.errors import OffloadedLedgerError
from quire.offload.folder import Listed, discard, ledger_path, locked, read_manifest, topic_folder, write_manifest
from tests.support.refusals import refuses

TOPIC = "persistent://public/default/orders"
UIDS = [str(UUID(int=number)) for number in range(20)]
GONE = {(3, UIDS[3]), (4, UIDS[4])}


class Killed(BaseException):
    """End of a process: nothing of it runs any more."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the folder of a topic: ledgers 3 to 5 are complete, 4 was begun before, 6 is being offloaded."""
    found = topic_folder(tmp_path, TOPIC)
    with locked(found):
        for ledger_id in range(3, 7):
            ledger_path(found, ledger_id, UIDS[ledger_id]).write_bytes(b"file")
        ledger_path(found, 4, UIDS[14]).write_bytes(b"older")
        folder.temporary(ledger_path(found, 3, UIDS[13])).write_bytes(b"half")
        write_manifest(found, TOPIC, [listed(ledger_id) for ledger_id in range(3, 6)])
    return found


def listed(ledger_id: int, uid: str = "") -> Listed:
    uid = uid or UIDS[ledger_id]
    name = ledger_path(Path(), ledger_id, uid).name
    return Listed(path=name, ledger=ledger_id, uid=uid, entries=1, rows=1, bytes=4, closed_ms=1)


def names(home: Path) -> set[str]:
    return {each.path.name for each in folder.files(home)}


REST = {ledger_path(Path(), ledger_id, UIDS[ledger_id]).name for ledger_id in (5, 6)}


def test_files_of_these_ledgers_go_with_what_killed_jobs_have_left_of_them(home: Path, tmp_path: Path) -> None:
    assert discard(tmp_path, TOPIC, GONE)
    assert names(home) == REST
    assert [each.ledger for each in read_manifest(home)] == [5]
    assert discard(tmp_path, TOPIC, GONE), "it can be repeated"
    assert names(home) == REST


def test_a_file_that_counts_stays_if_only_another_one_of_its_ledger_is_to_go(home: Path, tmp_path: Path) -> None:
    """The folder may have the files of a cluster that was there before, with the same ids."""
    write_manifest(home, TOPIC, [listed(3, UIDS[3]), listed(4, UIDS[14]), listed(5)])
    assert discard(tmp_path, TOPIC, {(4, UIDS[4])})
    assert {each.path.name for each in folder.files(home) if each.ledger_id == 4} == {listed(4, UIDS[14]).path}
    assert {(each.ledger, each.uid) for each in read_manifest(home)} == {(3, UIDS[3]), (4, UIDS[14]), (5, UIDS[5])}


def test_a_damaged_manifest_is_left_to_the_next_offloading(home: Path, tmp_path: Path) -> None:
    (home / folder.MANIFEST).write_bytes(b"{")
    before = names(home)
    assert discard(tmp_path, TOPIC, GONE)
    assert names(home) == before - {listed(3).path, listed(4).path}
    assert (home / folder.MANIFEST).read_bytes() == b"{"


def test_nothing_changes_while_the_topic_is_being_offloaded(home: Path, tmp_path: Path) -> None:
    before = names(home)
    with locked(home):
        assert not discard(tmp_path, TOPIC, GONE)
    assert names(home) == before
    assert len(read_manifest(home)) == 3
    assert discard(tmp_path, TOPIC, GONE)


def test_a_folder_that_is_away_is_no_deletion(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refuses(OffloadedLedgerError, lambda: discard(tmp_path / "empty", TOPIC, GONE), "is empty: mount it")
    refuses(FileNotFoundError, lambda: discard(tmp_path / "missing", TOPIC, GONE))
    assert discard(tmp_path, TOPIC, GONE), "nothing of this topic was ever offloaded"
    assert not topic_folder(tmp_path, TOPIC).exists()


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, number: int, steps: list[str]) -> Iterator[None]:
    """Kill the process before its operation of this number."""
    with monkeypatch.context() as patched:
        for owner, name in ((os, "fsync"), (Path, "unlink"), (Path, "rename"), (Path, "write_bytes")):
            work: Any = getattr(owner, name)

            def step(*given: Any, work: Any = work, name: str = name, **named: Any) -> Any:
                steps.append(name)
                if len(steps) == number:
                    raise Killed
                return work(*given, **named)

            patched.setattr(owner, name, step)
        yield


def test_wherever_it_is_killed_the_manifest_names_whole_files_and_a_repetition_ends_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {each.path: each.path.read_bytes() for each in folder.files(home)}
    manifest = (home / folder.MANIFEST).read_bytes()
    ends: list[str] = []
    with killed_at(monkeypatch, 0, ends):
        discard(tmp_path, TOPIC, GONE)
    assert ends.count("unlink") == 4
    assert ends[-1] == "fsync", "it is durable on return"
    for number in range(1, len(ends) + 1):
        for path, data in before.items():
            path.write_bytes(data)
        (home / folder.MANIFEST).write_bytes(manifest)
        with pytest.raises(Killed), killed_at(monkeypatch, number, []):
            discard(tmp_path, TOPIC, GONE)
        assert all((home / each.path).exists() for each in read_manifest(home))
        assert names(home) >= REST
        assert discard(tmp_path, TOPIC, GONE)
        assert names(home) == REST
        assert [each.ledger for each in read_manifest(home)] == [5]
