"""tests/support/async_tests.py: an async test is run to its end, and an error in it fails it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

TESTDATA = Path(__file__).parent / "testdata"
PLUGIN = 'pytest_plugins = ("tests.support.async_tests",)\n'


@dataclass
class Run:
    """Output of pytest on each test."""

    outcomes: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    """Output of pytest below the name of each test that failed."""


def run(folder: Path, script: str, conftest: str) -> Run:
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(script)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "-p",
        "no:schemathesis",
    ]
    command += ["--rootdir", str(folder), "-c", "/dev/null", str(folder)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100).stdout
    made = Run()
    for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) \S*::([\w\[\]]+)", shown, re.MULTILINE):
        assert name not in made.outcomes, f"{name} passed, and then failed after its end"
        made.outcomes[name] = outcome
    for name, text in re.findall(
        r"^_{3,} (?:ERROR at setup of )?([\w\[\].]+) _{3,}$\n(.*?)(?=^_{3,} |^={3,} |\Z)", shown, re.M | re.S
    ):
        made.said[name.rpartition(".")[2]] = text
    return made


@dataclass(frozen=True)
class Expected:
    """The end of a test, as its line says."""

    name: str
    outcome: str
    parts: tuple[str, ...]


def expected(script: str) -> list[Expected]:
    """Return what the lines of a script say: `def test_x():  # FAILED: part; other part`."""
    found = []
    for name, told in re.findall(r"def (test_\w+)\(.*\):  # (.*)$", script, re.MULTILINE):
        for suffix, outcome, parts in re.findall(r"(\[\d+\])? ?(PASSED|FAILED|ERROR)(?:: (.*))?", told):
            found.append(Expected(name + suffix, outcome, tuple(parts.split("; ")) if parts else ()))
    return found


PLAIN = (TESTDATA / "async_tests.txt").read_text()
SEEDED = (TESTDATA / "seeded_tests.txt").read_text()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    plugins = 'pytest_plugins = ("tests.support.async_tests", "tests.support.universes")\n'
    began = time.monotonic()
    made = run(tmp_path_factory.mktemp("plugin"), PLAIN, PLUGIN)
    assert time.monotonic() - began < 100
    seeded = run(tmp_path_factory.mktemp("seeded"), SEEDED, plugins)
    return Run(made.outcomes | seeded.outcomes, made.said | seeded.said)


@pytest.mark.parametrize("expected", [*expected(PLAIN), *expected(SEEDED)], ids=lambda each: each.name)
def test_a_test_ends_as_it_must(made: Run, expected: Expected) -> None:
    assert made.outcomes[expected.name] == expected.outcome
    for part in expected.parts:
        assert part in made.said[expected.name]


def test_every_test_of_the_scripts_has_an_outcome(made: Run) -> None:
    assert set(re.findall(r"def (test_\w+)", PLAIN + SEEDED)) == {each.partition("[")[0] for each in made.outcomes}
    assert {each.name for each in (*expected(PLAIN), *expected(SEEDED))} == set(made.outcomes)


def test_a_failed_assert_begins_in_the_test(made: Run) -> None:
    first_place = next(line for line in made.said["test_fails"].splitlines() if re.match(r"\S+:\d+: in ", line))
    assert first_place.endswith("in test_fails")


def test_groups_of_one_are_taken_off(made: Run) -> None:
    plain, seeded = ("nested_groups", "task_fails"), ("error_beside_a_world", "wakes_never", "not_seeded", "both")
    for name in (f"test_{each}" for each in plain + seeded):
        assert "ExceptionGroup" not in made.said[name].splitlines()[-1]
    assert re.match(r"\S+:\d+: in test_nested_groups", made.said["test_nested_groups"])


def test_what_cannot_be_cancelled_is_interrupted(tmp_path: Path) -> None:
    script = """
import pytest, trio
from tests.support import async_tests
async_tests.SHIELDED_S = 0.2

@pytest.mark.real_clock(seconds=0.2)
async def test_shielded():
    with trio.CancelScope(shield=True):
        await trio.sleep(60)

@pytest.mark.real_clock(seconds=0.2)
async def test_no_checkpoint():
    while True:
        pass
"""
    made = run(tmp_path, script, PLUGIN)
    for name in ("test_shielded", "test_no_checkpoint"):
        assert made.outcomes[name] == "FAILED"
        assert "the test did not end within 0.2 s" in made.said[name]


def test_without_the_plugin_an_async_test_is_no_pass(tmp_path: Path) -> None:
    assert run(tmp_path, "async def test_it(): assert 1 == 2\n", "").outcomes == {"test_it": "FAILED"}
