"""quire.cli.salvage: messages of ledgers from entry logs, with what is missing or damaged named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from quire.cli.salvage import command, entry_logs
from quire.cli.salvage.command import ledgers_of, run
from quire.cli.salvage.entry_logs import SalvageReader
from quire.metadata.local.memory import MemoryTree
from quire.wire.bookkeeper.entry import DigestType, digest_of
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata
from quire.world.real import real_world
from tests.unit.bookie.build import Client, cluster

LEDGER, OTHER, NO_MESSAGES = 7, 8, 9
COUNT = 5


def message(number: int) -> bytes:
    """Return an entry of a topic, without a checksum."""
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1000 + number, partition_key="k")
    head = metadata.SerializeToString()
    return len(head).to_bytes(4, "big") + head + b"message %d" % number


def entries_of(ledger_id: int, count: int = COUNT, left_out: tuple[int, ...] = ()) -> list[tuple[int, int, bytes]]:
    digest = digest_of(DigestType.CRC32C)
    found = []
    for number in range(count):
        payload = b"no message" if ledger_id == NO_MESSAGES else message(number)
        if number not in left_out:
            found.append((ledger_id, number, digest.seal(ledger_id, number, number - 1, 0, payload) + payload))
    return found


def write_log(folder: Path, entries: list[tuple[int, int, bytes]], name: str = "0.log") -> Path:
    """Write an entry log with these entries."""
    (folder / "current").mkdir(parents=True, exist_ok=True)
    body = b"".join(len(entry).to_bytes(4, "big") + entry for _, _, entry in entries)
    path = folder / "current" / name
    path.write_bytes(b"BKLO\0\0\0\x01".ljust(1024, b"\0") + body)
    return path


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, object]], str]:
    said = capsys.readouterr()
    return [json.loads(line) for line in said.out.splitlines()], said.err


def test_all_messages_of_a_ledger_are_printed_in_order_and_no_others(tmp_path: Path, capsys) -> None:
    entries = [*entries_of(OTHER), *entries_of(LEDGER)[::-1]]
    write_log(tmp_path, entries)
    assert run([tmp_path], [str(LEDGER)], topic="orders") == 0
    found, err = printed(capsys)
    assert [each["value"] for each in found] == [f"message {number}" for number in range(COUNT)]
    assert {(each["key"], each["topic"]) for each in found} == {("k", "orders")}
    assert err == ""


def test_missing_entries_and_ledgers_are_named(tmp_path: Path, capsys) -> None:
    write_log(tmp_path, entries_of(LEDGER, left_out=(1, 2)))
    assert run([tmp_path], [f"{LEDGER}-{OTHER}"]) == 1
    found, err = printed(capsys)
    assert len(found) == COUNT - 2
    assert "entries 1 to 2 of ledger 7 are not here" in err
    assert "ledger 8 has no entries here" in err


def test_a_damaged_copy_is_replaced_by_another_one_or_named(tmp_path: Path, capsys) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    write_log(good, entries_of(LEDGER))
    path = write_log(bad, entries_of(LEDGER))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert run([bad, good], [str(LEDGER)]) == 0
    assert len(printed(capsys)[0]) == COUNT
    assert run([bad], [str(LEDGER)]) == 1
    found, err = printed(capsys)
    assert len(found) == COUNT - 1
    assert f"entry 7:{COUNT - 1} is damaged" in err
    path.write_bytes(data[:-3])
    assert run([bad], [str(LEDGER)]) == 1
    assert "is torn or damaged at offset" in printed(capsys)[1]


def test_without_a_ledger_all_are_listed_and_those_of_topics_are_marked(tmp_path: Path, capsys) -> None:
    write_log(tmp_path, [*entries_of(LEDGER), *entries_of(NO_MESSAGES)])
    assert run([tmp_path], []) == 0
    found, _ = printed(capsys)
    assert [(each["ledger"], each["entries"], each["messages"]) for each in found] == [(7, 5, True), (9, 5, False)]
    assert found[0]["first_publish_time"] == 1000


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-x", "", "0-9999999", "5-3", "0-99999999999999999999", "²"])
def test_a_text_that_names_no_ledgers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--ledger"):
        ledgers_of([text])


def test_a_log_that_is_deleted_meanwhile_is_named_and_the_others_are_read(tmp_path: Path, capsys, monkeypatch) -> None:
    """A bookie that runs may collect a log between the two reads of it."""
    write_log(tmp_path, entries_of(LEDGER))
    gone = write_log(tmp_path, entries_of(OTHER), "1.log")
    scan = entry_logs.scan

    def then_deleted(*given: Any) -> Any:
        found = scan(*given)
        gone.unlink()
        return found

    monkeypatch.setattr(command, "scan", then_deleted)
    assert run([tmp_path], [f"{LEDGER}-{OTHER}"]) == 1
    found, err = printed(capsys)
    assert len(found) == COUNT
    assert err.count(f"{gone} was deleted in the meantime") == 1
    monkeypatch.undo()
    (tmp_path / "current" / "2.log").symlink_to(tmp_path / "nothing")
    assert run([tmp_path], [str(LEDGER)]) == 0, "found by name, gone when its time is read"
    assert len(printed(capsys)[0]) == COUNT


def test_an_entry_without_bytes_is_no_damage(tmp_path: Path) -> None:
    head = digest_of(DigestType.CRC32C).seal(LEDGER, 0, -1, 0, b"")
    write_log(tmp_path, [(LEDGER, 0, head)])
    with SalvageReader(entry_logs.scan([tmp_path], None)) as reader:
        assert list(reader.entries(LEDGER)) == [(0, b"")]


def test_a_folder_without_entry_logs_is_refused(tmp_path: Path, capsys) -> None:
    assert run([tmp_path], ["1"]) == 2
    assert "has no entry logs" in printed(capsys)[1]


@pytest.mark.real_clock
async def test_logs_of_a_real_bookie_are_read(tmp_path: Path, capsys) -> None:
    config = BookieConfig(
        bookie_id="bookie:1",
        journal_directories=(str(tmp_path / "journal"),),
        ledger_directories=(str(tmp_path / "ledgers"),),
        journal_prealloc_mb=1,
    )
    world = real_world(1)
    store = await cluster(MemoryTree(), world)
    async with open_bookie(world, config, store) as bookie:
        await Client(bookie).add(LEDGER, 0, COUNT)
    assert run([tmp_path / "ledgers"], []) == 0
    assert [each["ledger"] for each in printed(capsys)[0]] == [LEDGER]


@pytest.mark.parametrize("words", [("--ledger", str(LEDGER)), ()])
def test_an_output_on_a_full_disk_is_one_line_and_a_repeat_prints_all(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The messages need more than one buffer of the output; the list of ledgers is written at the exit."""
    write_log(tmp_path, entries_of(LEDGER, 200))
    command = [sys.executable, "-m", "quire.cli.main", "salvage", str(tmp_path), *words]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (
        1,
        "quire: standard output: No space left on device; what was written is not whole. Make room, and run the "
        "command again\n",
    )
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, len(again.stdout.splitlines())) == (0, 200 if words else 1)


def test_a_reader_of_the_output_that_leaves_is_no_error(tmp_path: Path) -> None:
    write_log(tmp_path, entries_of(LEDGER, 20_000))
    command = f"{sys.executable} -m quire.cli.main salvage {tmp_path} --ledger {LEDGER} | head -n 1"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ran.stderr, len(ran.stdout.splitlines())) == ("", 1)
