"""The job that offloads, with a ledger list in memory: it fails at every step, and runs beside another one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any
from uuid import UUID

import pytest

from managed_ledger.errors import OffloadRefusedError
from managed_ledger.ledger_list import LedgerInfo, LedgerList
from managed_ledger.offloading import closed_ledgers, completed, prepared, released, state_of
from quire.offload import folder, parquet
from quire.offload.errors import OffloadedLedgerError, OffloadInUseError
from quire.offload.folder import files, read_manifest, topic_folder
from quire.offload.parquet import OffloadedLedger
from quire.offload.rows import rows_of
from quire.spark.pipelines.offloading import DRIVER, OffloadTotals, TopicOffload
from quire.spark.reading.columns import TYPES
from tests.support.refusals import refuses
from tests.unit.spark.entries import plain

TOPIC = "persistent://public/default/orders"
POINTS = ("prepared", "half", "written", "published", "completed", "listed")
_PLACED = Struct("!qqI")
_RUN = 7
"""Entries of one answer."""


class Killed(BaseException):
    """End of a process: nothing of it runs any more."""


class FakeOwner:
    """Two closed ledgers of 20 entries, an open one, and the real rules of the list."""

    def __init__(self) -> None:
        self.log = {ledger: [plain(b"%d:%d" % (ledger, each)) for each in range(20)] for ledger in (3, 5, 9)}
        infos = [LedgerInfo(ledger_id=each, entries=20, size=900, closed_ms=1000) for each in (3, 5)]
        self.list = LedgerList(ledgers=(*infos, LedgerInfo(ledger_id=9)))
        self.before: dict[str, Callable[[], None]] = {}
        """Called once before the request of that name."""
        self.lost = False
        """True if the next completion is carried out, and its answer is a refusal."""

    def trim(self, ledger_id: int) -> None:
        self.list = self.list.without([ledger_id])
        del self.log[ledger_id]

    def state(self, ledger_id: int) -> Any:
        return next(state_of(each) for each in self.list.ledgers if each.ledger_id == ledger_id)

    def entries(self, topic: str, ledger_id: int, entry_id: int) -> bytes:
        self._called("entries")
        places = [(ledger, entry) for ledger, entries in sorted(self.log.items()) for entry in range(len(entries))]
        found = [place for place in places if place >= (ledger_id, entry_id)][:_RUN]
        runs = [(place, self.log[place[0]][place[1]]) for place in found]
        return b"".join(_PLACED.pack(*place, len(entry)) + entry for place, entry in runs)

    def offloading(self, topic: str) -> list[dict[str, Any]]:
        assert topic == TOPIC
        self._called("offloading")
        found = []
        for info in closed_ledgers(self.list):
            state = state_of(info)
            about = {"ledgerId": info.ledger_id, "entries": info.entries, "closedMs": info.closed_ms}
            found.append({**about, "uid": state.uid, "complete": state.complete, "driver": state.driver})
        return found

    def prepare_offload(self, topic: str, ledger_id: int, uid: str, *, instead: str, driver: str) -> bool:
        self._called("prepare")
        return self._change(lambda: prepared(self.list, ledger_id, UUID(uid), instead=instead, driver=driver, now_ms=1))

    def complete_offload(self, topic: str, ledger_id: int, uid: str) -> bool:
        self._called("complete")
        done = self._change(lambda: completed(self.list, ledger_id, UUID(uid), now_ms=2))
        lost, self.lost = self.lost, False
        return done and not lost

    def release_offload(self, topic: str, ledger_id: int, uid: str) -> bool:
        return self._change(lambda: released(self.list, ledger_id, UUID(uid)))

    def _called(self, name: str) -> None:
        self.before.pop(name, lambda: None)()

    def _change(self, change: Callable[[], LedgerList]) -> bool:
        try:
            self.list = change()
        except OffloadRefusedError:
            return False
        return True


@pytest.fixture
def owner() -> FakeOwner:
    return FakeOwner()


def run(owner: FakeOwner, out: Path, **options: Any) -> OffloadTotals:
    return TopicOffload(owner, TOPIC, out, **options).run()


def check_whole(owner: FakeOwner, out: Path, ledgers: tuple[int, ...] = (3, 5)) -> None:
    """Each ledger has one file, which the list and the manifest name, and it has every entry."""
    home = topic_folder(out, TOPIC)
    found = files(home)
    assert [file.ledger_id for file in found] == list(ledgers)
    assert not any(file.temporary for file in found)
    assert [(each.ledger, each.path) for each in read_manifest(home)] == [
        (file.ledger_id, file.path.name) for file in found
    ]
    for file in found:
        state = owner.state(file.ledger_id)
        assert (state.uid, state.complete, state.driver) == (file.uid, True, DRIVER)
        ledger = OffloadedLedger(file.path)
        assert ledger.read(0, 19, 1 << 20) == owner.log[file.ledger_id]
        ledger.close()


def test_closed_ledgers_are_offloaded_once(owner: FakeOwner, tmp_path: Path) -> None:
    totals = run(owner, tmp_path)
    assert (totals.ledgers, totals.entries, totals.known, totals.removed, totals.problems) == (2, 40, 0, 0, [])
    check_whole(owner, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    totals = run(owner, tmp_path)
    assert (totals.ledgers, totals.known, totals.problems) == (0, 2, [])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def killed_at(owner: FakeOwner, out: Path, point: str, ledger_id: int) -> None:
    def kill(at: str, ledger: int) -> None:
        if at == point and ledger in (ledger_id, -1):
            raise Killed

    with pytest.raises(Killed):
        run(owner, out, observe=kill)


@pytest.mark.parametrize("ledger_id", [3, 5])
@pytest.mark.parametrize("point", POINTS)
def test_a_job_that_was_killed_is_continued_by_the_next_one(
    owner: FakeOwner, tmp_path: Path, point: str, ledger_id: int
) -> None:
    killed_at(owner, tmp_path, point, ledger_id)
    for file in files(topic_folder(tmp_path, TOPIC)):
        if not file.temporary:
            OffloadedLedger(file.path).check()
    run(owner, tmp_path)
    check_whole(owner, tmp_path)


@pytest.mark.parametrize("point", ["prepared", "half", "written"])
def test_a_job_that_is_killed_again_and_again_leaves_one_file_in_the_end(
    owner: FakeOwner, tmp_path: Path, point: str
) -> None:
    for _ in range(3):
        killed_at(owner, tmp_path, point, 3)
    run(owner, tmp_path)
    check_whole(owner, tmp_path)


def test_a_published_file_is_completed_and_not_written_again(owner: FakeOwner, tmp_path: Path) -> None:
    killed_at(owner, tmp_path, "published", 3)
    [file] = files(topic_folder(tmp_path, TOPIC))
    assert owner.state(3).uid == file.uid
    assert not owner.state(3).complete
    run(owner, tmp_path)
    assert owner.state(3).uid == file.uid
    check_whole(owner, tmp_path)


def test_a_published_file_that_is_damaged_is_written_again(owner: FakeOwner, tmp_path: Path) -> None:
    killed_at(owner, tmp_path, "published", 3)
    [file] = files(topic_folder(tmp_path, TOPIC))
    data = file.path.read_bytes()
    file.path.write_bytes(data[:100] + bytes(50) + data[150:])
    assert run(owner, tmp_path).removed == 1
    check_whole(owner, tmp_path)
    assert owner.state(3).uid != file.uid


@pytest.mark.parametrize("point", ["prepared", "written", "published"])
def test_of_two_jobs_one_wins_and_its_file_stays(owner: FakeOwner, tmp_path: Path, point: str) -> None:
    """The other one works in another folder that is the same: a shared one without locks."""
    done: list[str] = []

    def other(at: str, ledger: int) -> None:
        if at == point and not done:
            done.append(at)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(folder, "LOCK", "_other")
                run(owner, tmp_path)

    totals = run(owner, tmp_path, observe=other)
    assert done
    assert totals.problems == []
    run(owner, tmp_path)
    check_whole(owner, tmp_path)


def test_a_second_job_in_the_same_folder_is_refused(owner: FakeOwner, tmp_path: Path) -> None:
    with folder.locked(topic_folder(tmp_path, TOPIC)):
        refuses(OffloadInUseError, lambda: run(owner, tmp_path), "another process")


def test_a_ledger_that_is_trimmed_while_it_is_copied_leaves_nothing(owner: FakeOwner, tmp_path: Path) -> None:
    for request in ("prepare", "entries", "complete"):
        own = FakeOwner()
        own.before[request] = lambda own=own: own.trim(3)  # type: ignore[misc]
        assert run(own, tmp_path / request).problems == []
        check_whole(own, tmp_path / request, (5,))


def test_a_completion_whose_answer_was_lost_keeps_its_file(owner: FakeOwner, tmp_path: Path) -> None:
    owner.lost = True
    run(owner, tmp_path)
    check_whole(owner, tmp_path)


def test_entries_that_do_not_come_are_an_error_and_nothing_is_completed(owner: FakeOwner, tmp_path: Path) -> None:
    owner.log[3] = owner.log[3][:19]
    refuses(OffloadedLedgerError, lambda: run(owner, tmp_path), "entry 3:19 of")
    assert files(topic_folder(tmp_path, TOPIC)) == []
    assert not owner.state(3).complete


def test_what_was_written_is_read_before_it_counts(
    owner: FakeOwner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer with a bug: one entry has the rows of another."""
    wrong = [plain(b"another")]
    make = rows_of
    monkeypatch.setattr(parquet, "rows_of", lambda entry: make(wrong.pop() if wrong else entry))
    refuses(OffloadedLedgerError, lambda: run(owner, tmp_path), "damaged")
    assert not owner.state(3).complete
    run(owner, tmp_path)
    check_whole(owner, tmp_path)


def test_files_of_trimmed_ledgers_stay_unless_they_are_to_go(owner: FakeOwner, tmp_path: Path) -> None:
    run(owner, tmp_path)
    owner.list = owner.list.without([3])
    home = topic_folder(tmp_path, TOPIC)
    assert run(owner, tmp_path).removed == 0
    assert [each.ledger for each in read_manifest(home)] == [3, 5]
    assert run(owner, tmp_path, remove_trimmed=True).removed == 1
    check_whole(owner, tmp_path, (5,))


@pytest.mark.parametrize("point", POINTS)
def test_a_broker_deletes_the_file_of_a_ledger_that_is_trimmed_beside_a_job(
    owner: FakeOwner, tmp_path: Path, point: str
) -> None:
    gone: set[tuple[int, str]] = set()

    def observe(at: str, ledger_id: int) -> None:
        if at == point and not gone:
            gone.add((3, owner.state(3).uid))
            owner.trim(3)
            assert not folder.discard(tmp_path, TOPIC, gone), "the job is not disturbed"

    totals = run(owner, tmp_path, observe=observe)
    assert gone
    assert totals.problems == []
    assert folder.discard(tmp_path, TOPIC, gone)
    home = topic_folder(tmp_path, TOPIC)
    assert {each.ledger_id for each in files(home)} == {each.ledger for each in read_manifest(home)} == {5}
    assert run(owner, tmp_path).problems == []
    assert {each.ledger_id for each in files(home)} == {5}


def test_the_file_of_the_last_ledger_stays(owner: FakeOwner, tmp_path: Path) -> None:
    """The empty ledger behind it left the list when a broker opened the topic; the file may be the only copy."""
    run(owner, tmp_path)
    owner.trim(9)
    assert run(owner, tmp_path, remove_trimmed=True).removed == 0
    check_whole(owner, tmp_path)


def test_a_file_stays_while_no_other_one_of_its_ledger_is_complete(owner: FakeOwner, tmp_path: Path) -> None:
    """The list may come from a broker that has lost the topic, and the file from a job that asked the next one."""
    home = topic_folder(tmp_path, TOPIC)
    home.mkdir(parents=True)
    other = folder.ledger_path(home, 3, str(UUID(int=9)))
    other.write_bytes(b"")
    owner.list = prepared(owner.list, 3, UUID(int=8), instead="", driver=DRIVER, now_ms=1)
    assert run(owner, tmp_path, min_age_s=10**12).removed == 0
    assert other.exists()
    assert run(owner, tmp_path).removed == 1
    check_whole(owner, tmp_path)


def test_a_file_is_durable_before_it_has_its_name_and_its_name_before_it_counts(
    owner: FakeOwner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.trim(5)
    steps: list[str] = []
    sync = folder.sync
    home = topic_folder(tmp_path, TOPIC)

    def recorded(path: Path) -> None:
        if "prepared" in steps and "completed" not in steps:
            named = any(not file.temporary for file in files(home))
            steps.append(f"{'folder' if path == home else path.suffix} {'named' if named else 'not named'}")
        sync(path)

    monkeypatch.setattr(folder, "sync", recorded)
    run(owner, tmp_path, observe=lambda at, ledger: steps.append(at))
    assert [each for each in steps if each != "half"] == [
        "prepared",
        "written",
        ".tmp not named",
        "folder named",
        "published",
        "completed",
        "listed",
    ]


def test_the_name_of_a_file_is_durable_before_the_next_job_completes_it(
    owner: FakeOwner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job is killed after it has given the file its name, and before that is durable."""
    sync = folder.sync
    home = topic_folder(tmp_path, TOPIC)

    def killed(path: Path) -> None:
        if path == home and any(not file.temporary for file in files(home)):
            raise Killed
        sync(path)

    monkeypatch.setattr(folder, "sync", killed)
    with pytest.raises(Killed):
        run(owner, tmp_path)
    assert [file.temporary for file in files(home)] == [False]
    assert not owner.state(3).complete
    steps: list[str] = []

    def recorded(path: Path) -> None:
        steps.append(f"{path.name} synced")
        sync(path)

    monkeypatch.setattr(folder, "sync", recorded)
    run(owner, tmp_path, observe=lambda at, ledger: steps.append(at))
    assert steps[: steps.index("completed")] == [f"{home.name} synced"]


def test_a_released_ledger_has_no_file_and_can_be_offloaded_again(owner: FakeOwner, tmp_path: Path) -> None:
    run(owner, tmp_path)
    before = owner.state(3).uid
    assert TopicOffload(owner, TOPIC, tmp_path).release().removed == 2
    check_whole(owner, tmp_path, ())
    assert owner.state(3).uid == owner.state(5).uid == ""
    run(owner, tmp_path)
    check_whole(owner, tmp_path)
    assert owner.state(3).uid != before


def test_ledgers_of_other_drivers_and_missing_files_are_problems(owner: FakeOwner, tmp_path: Path) -> None:
    uid = UUID(int=5)
    owner.list = prepared(owner.list, 3, uid, instead="", driver="aws-s3", now_ms=1)
    totals = run(owner, tmp_path)
    assert [text[:40] for text in totals.problems] == ["ledger 3 of persistent://public/default/"]
    assert owner.state(3).uid == str(uid)
    owner.list = completed(owner.list, 3, uid, now_ms=1)
    assert len(run(owner, tmp_path).problems) == 1
    [file] = files(topic_folder(tmp_path, TOPIC))
    file.path.unlink()
    assert "is missing" in run(owner, tmp_path).problems[1]


def test_young_ledgers_wait(owner: FakeOwner, tmp_path: Path) -> None:
    assert run(owner, tmp_path, min_age_s=10**12).ledgers == 0
    assert not owner.state(3).uid


def test_a_stop_ends_the_run_between_two_ledgers(owner: FakeOwner, tmp_path: Path) -> None:
    done: list[int] = []
    run(
        owner,
        tmp_path,
        observe=lambda at, ledger: done.append(ledger) if at == "completed" else None,
        is_stopped=lambda: bool(done),
    )
    assert done == [3]
    check_whole(owner, tmp_path, (3,))


def test_the_columns_are_those_of_the_source() -> None:
    own = {field.name: field.type for field in parquet.SCHEMA}
    shared = {name: kind for name, (_, kind) in TYPES.items() if name != "__messageId"}
    assert {name: own.get(name) for name in shared} == shared
    assert list(own)[: len(shared)] == list(shared)


def test_no_name_of_a_topic_leaves_the_folder(tmp_path: Path) -> None:
    for local in ("..a", ".hidden", "a/b", "_lock", "_manifest.json", "%41", "a b"):
        found = topic_folder(tmp_path, f"persistent://public/default/{local}")
        assert found.parent == tmp_path / "public" / "default"
        assert found.name[0] not in "._"


def test_a_damaged_manifest_is_named(owner: FakeOwner, tmp_path: Path) -> None:
    run(owner, tmp_path)
    path = topic_folder(tmp_path, TOPIC) / folder.MANIFEST
    assert json.loads(path.read_bytes())["topic"] == TOPIC
    path.write_text("{}")
    refuses(OffloadedLedgerError, lambda: run(owner, tmp_path), "is damaged")
