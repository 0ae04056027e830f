"""A file of tests is run to its end, whatever its tests do to the process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tools.official_suite.__main__ import require_version
from tools.official_suite.errors import SuiteError
from tools.official_suite.runs import run_file
from tools.official_suite.verdict import Outcome

SUITE = """
import os, signal, time, unittest

class Suite(unittest.TestCase):
    def test_1_passes(self):
        pass

    def test_2_fails(self):
        self.assertEqual(1, 2)

    def test_3_does_not_end(self):
        time.sleep(3600)

    def test_4_is_skipped(self):
        self.skipTest("no Docker")

    def test_5_ends_the_process(self):
        os._exit(7)

    def test_6_passes(self):
        pass

class Fixture(unittest.TestCase):
    def tearDown(self):
        raise OSError("not closed")

    def test_7_fails_afterwards(self):
        pass
"""


def test_every_test_gets_its_outcome(tmp_path: Path) -> None:
    file = tmp_path / "some_test.py"
    file.write_text(SUITE)
    found = run_file(file, tmp_path, tmp_path, stall_s=15)
    outcomes = {test.rpartition("::")[2]: result.outcome for test, result in found.items()}
    assert outcomes == {
        "test_1_passes": Outcome.PASSED,
        "test_2_fails": Outcome.FAILED,
        "test_3_does_not_end": Outcome.STALLED,
        "test_4_is_skipped": Outcome.SKIPPED,
        "test_5_ends_the_process": Outcome.FAILED,
        "test_6_passes": Outcome.PASSED,
        "test_7_fails_afterwards": Outcome.FAILED,
    }
    assert found["some_test.py::Suite::test_2_fails"].text == "AssertionError: 1 != 2"
    assert "no Docker" in found["some_test.py::Suite::test_4_is_skipped"].text
    assert "ended with 7" in found["some_test.py::Suite::test_5_ends_the_process"].text


INTERRUPTED = """
import signal, unittest

class Suite(unittest.TestCase):
    def test_it_is_interrupted(self):
        with self.assertRaises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.full
def test_tests_can_be_interrupted_where_a_shell_has_started_the_suite_in_the_background(tmp_path: Path) -> None:
    file = tmp_path / "some_test.py"
    file.write_text(INTERRUPTED)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a process started by `command &` inherits this
    try:
        found = run_file(file, tmp_path, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert found["some_test.py::Suite::test_it_is_interrupted"].outcome is Outcome.PASSED


@pytest.mark.full
def test_a_file_that_cannot_be_imported_fails(tmp_path: Path) -> None:
    file = tmp_path / "some_test.py"
    file.write_text("import no_such_module_at_all\n")
    found = run_file(file, tmp_path, tmp_path)
    assert found["some_test.py"].outcome is Outcome.FAILED


@pytest.mark.full
def test_options_of_a_surrounding_project_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    suite = tmp_path / "tests"
    suite.mkdir()
    file = suite / "some_test.py"
    file.write_text("def test_one():\n    pass\n")
    work = tmp_path / "work"
    work.mkdir()
    assert run_file(file, tmp_path, work)["some_test.py::test_one"].outcome is Outcome.PASSED


@pytest.mark.parametrize("text", [None, "__version__='3.0.0'\n", "nothing\n"])
def test_another_version_of_the_client_is_refused(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "pulsar").mkdir()
    if text is not None:
        (tmp_path / "pulsar" / "__about__.py").write_text(text)
    with pytest.raises(SuiteError, match=r"checkout|version"):
        require_version(tmp_path)
