"""A seed is a history: the same one each time, in each process, under each hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.common.sweep import HISTORIES, run_one

ROOT = Path(__file__).parents[2]


def digests(target: Path, hash_seed: int, seeds: str) -> list[str]:
    command = [sys.executable, "-m", "simulation", "--seeds", seeds, "--jobs", "2", "--digests", str(target)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target.read_text("ascii").splitlines()


@pytest.mark.parametrize(("first", "count"), [(7, 1), pytest.param(0, 4, marks=pytest.mark.full)])
def test_two_hash_seeds_give_the_same_histories(tmp_path: Path, first: int, count: int) -> None:
    seeds = f"{first}..{first + count - 1}"
    one, other = digests(tmp_path / "one", 1, seeds), digests(tmp_path / "other", 4242, seeds)
    assert one == other
    assert len({line.split()[2] for line in one}) == len(one) == count * len(HISTORIES)


def test_the_same_seed_gives_the_same_history_twice_in_a_process() -> None:
    for history in ("standalone", "fencing"):  # ledger and cluster: where their tales are told
        first, second = run_one(history, 3), run_one(history, 3)
        assert first.ok, first.line
        assert first == second
