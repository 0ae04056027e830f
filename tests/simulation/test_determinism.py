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
CHEAP = {
    "standalone": 3,
    "fencing": 0,
    "reuse": 0,
    "compaction": 0,
    "transactions": 0,
    "client": 0,
    "explain": 0,
    "limits": 0,
    "ledger": 4,
    "cluster": 1,
}
"""A quick seed of each history, of those that the other tests run."""
LONG = {"day", "transacting", "living", "life", "spread", "losing", "housekeeping", "offload"}
"""Histories that take too long to be run twice more; `--full` compares them too."""
DIGESTS = """
import sys
from simulation.common.sweep import Work, run_all

if __name__ == "__main__":  # which its worker processes are not
    work = [Work(history, int(seed)) for history, seed in (each.split(":") for each in sys.argv[1:])]
    for each in run_all(work, jobs=2):
        print(each.history, each.seed, each.digest)
"""


def test_another_hash_seed_gives_the_same_histories(histories: Histories, tmp_path: Path) -> None:
    assert CHEAP.keys() == HISTORIES.keys() - LONG
    # (of the processes of the other tests)
    ours = os.environ.get("PYTHONHASHSEED", "random")
    program = tmp_path / "digests.py"
    program.write_text(DIGESTS)
    environment = {**os.environ, "PYTHONHASHSEED": "4242" if ours != "4242" else "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(program), *(f"{history}:{seed}" for history, seed in CHEAP.items())]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = histories.outcomes([Work(history, seed) for history, seed in CHEAP.items()])
    assert done.stdout.splitlines() == [f"{each.history} {each.seed} {each.digest}" for each in found]
    assert all(each.digest for each in found), "a history that failed has none"
    assert len({each.digest for each in found}) == len(CHEAP)


def digests(target: Path, hash_seed: str, seeds: str) -> list[str]:
    command = [sys.executable, "-m", "simulation", "--seeds", seeds, "--jobs", "2", "--digests", str(target)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target.read_text("ascii").splitlines()


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
