"""Bits that change on the disk of a server are detected, never reach a consumer, and every loss is reported."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import web
from tests.support.damage.page import promises, row_of
from tests.support.damage.places import Case, Damage
from tests.support.damage.runner import all_cases, prepare, run_cases
from tests.support.damage.verdicts import Outcome, table
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess, standalone

pytestmark = pytest.mark.cluster
TOPIC = "persistent://public/default/damage"
CASES_MIN = 600


@pytest.mark.parametrize("field", ["payload", "entry id"])
def test_a_flipped_bit_in_an_entry_log_is_never_delivered(tmp_path: Path, field: str) -> None:
    with standalone(tmp_path) as server:
        with RawClient(server.port) as client:
            client.producer(TOPIC)
            client.subscribe(TOPIC)
            for number in range(20):
                client.publish(b"message %d" % number, sequence_id=number)
        assert server.stop() == 0
        (log,) = server.data.glob("bookie/ledgers/current/*.log")
        data = bytearray(log.read_bytes())
        place = data.index(b"message 7")
        if field == "entry id":
            # An entry begins with ledger id, entry id, LAC: entry 7 of its ledger knows LAC 6 or less.
            place = data.rindex((7).to_bytes(8, "big"), 0, place) + 7
        data[place] ^= 0x10
        log.write_bytes(data)
        found = subprocess.run(
            [sys.executable, "-m", "quire.cli.main", "doctor", "--data-dir", server.data],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 1
        assert f"DAMAGED {log} is damaged: " in found.stdout
        server.announced += ["read failed", "an entry is damaged, and there is no other bookie with a copy"]
        server.start()
        with RawClient(server.port) as client:
            client.subscribe(TOPIC)
            client.flow(100)
            seen = [client.message()[1] for _ in range(7)]
            assert client.silent(1.0)
        assert seen == [b"message %d" % number for number in range(7)]
        assert "read failed" in server.log()
        assert found_by_a_scrub(server)


def found_by_a_scrub(server: StandaloneProcess) -> bool:
    """Ask a standalone server for a scrub, and return whether it reports the damage everywhere."""
    url = f"{server.web}/api/v1/bookie/scrub"
    assert web.request("PUT", url, json={"begin": True, "entriesPerSecond": 1000}, timeout=30).is_success
    deadline = time.monotonic() + 60
    while not (seen := web.get(url, timeout=30).json())["rounds"]:
        assert time.monotonic() < deadline, "the scrub does not end"
        time.sleep(0.05)
    (directory,) = seen["directories"]
    (ledger,) = directory["firstDamagedLedgers"]
    assert ledger["notHealed"] == "there is no other bookie with a copy"
    assert server.metric("quire_bookie_scrub_damaged_ledgers") == 1
    doctor = [sys.executable, "-m", "quire.cli.main", "doctor", "--url", server.web]
    found = subprocess.run(doctor, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    return "has 1 ledgers with damaged entries" in found.stdout


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make data directories of a standalone server and of a bookie, one for each way to end."""
    folder = tmp_path_factory.mktemp("damage")
    prepare(folder)
    return folder


def drawn(folders: Path, *, every: bool) -> list[Case]:
    """Return the cases of every run, one drawn for each fourth statement of docs/faults.md; or all others."""
    cases = all_cases(folders)
    assert len(cases) >= CASES_MIN
    random.Random(11).shuffle(cases)
    first: dict[tuple[str, Damage], Case] = {}
    rest = []
    for case in cases:
        if first.setdefault((row_of(case.place.kind), case.damage), case) is not case:
            rest.append(case)
    drawn_of_all = list(first.values())
    return drawn_of_all[::4] if every else [*(case for place, case in enumerate(drawn_of_all) if place % 4), *rest]


def judge(outcomes: list[tuple[Case, Outcome]]) -> None:
    print(table(outcomes))
    promised = promises()
    bad = [
        (case, outcome)
        for case, outcome in outcomes
        if outcome.verdict not in promised[row_of(case.place.kind), case.damage]
    ]
    assert not bad, "\n".join(f"{o.verdict.value}: {case.name}, {o.done}: {o.detail}" for case, o in bad)


def test_damage_to_any_file_is_right_refused_or_answered_with_an_error(folders: Path) -> None:
    judge(list(run_cases(folders, drawn(folders, every=True))))


@pytest.mark.full
def test_damage_to_any_file_in_every_place_is_right_refused_or_answered_with_an_error(folders: Path) -> None:
    judge(list(run_cases(folders, drawn(folders, every=False))))
