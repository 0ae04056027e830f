"""A seed determines its history: it is the same each time, in each process, under each hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.common.sweep import HISTORIES, Work, run_one
from tests.simulation.histories import Histories

ROOT = Path(__file__).parents[2]
SEED = 7
"""A seed of the slices of all histories."""


def digests(target: Path, hash_seed: str, seeds: str) -> list[str]:
    command = [sys.executable, "-m", "simulation", "--seeds", seeds, "--jobs", "2", "--digests", str(target)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target.read_text("ascii").splitlines()


def test_another_hash_seed_gives_the_same_histories(histories: Histories, tmp_path: Path) -> None:
    ours = os.environ.get(
        "PYTHONHASHSEED", "random"
    )  # of the other tests' processes: these histories are in their slices
    other = digests(tmp_path / "other", "4242" if ours != "4242" else "1", f"{SEED}..{SEED}")
    found = histories.outcomes([Work(history, SEED) for history in HISTORIES])
    assert other == [f"{each.history} {each.seed} {each.digest}" for each in found]
    assert len({each.digest for each in found}) == len(HISTORIES)


@pytest.mark.full
def test_two_hash_seeds_give_the_same_histories(tmp_path: Path) -> None:
    one, other = digests(tmp_path / "one", "1", "0..3"), digests(tmp_path / "other", "4242", "0..3")
    assert one == other
    assert len({line.split()[2] for line in one}) == len(one) == 4 * len(HISTORIES)


def test_the_same_seed_gives_the_same_history_twice_in_a_process() -> None:
    for history in ("standalone", "fencing"):  # ledger and cluster: where their tales are told
        first, second = run_one(history, 3), run_one(history, 3)
        assert first.ok, first.line
        assert first == second
