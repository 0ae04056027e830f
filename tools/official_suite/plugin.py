"""Plug-in of pytest that writes lines of JSON: when a test begins, its outcome, and when its fixtures are undone.

It runs in the process of the tests: what has been written stays if that process has to be killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

VARIABLE = "QUIRE_OFFICIAL_SUITE_EVENTS"
"""Environment variable with the path of the file."""


def _write(**event: str) -> None:
    with Path(os.environ[VARIABLE]).open("a", encoding="utf-8") as events:
        events.write(json.dumps(event) + "\n")


def pytest_configure() -> None:
    """Make SIGINT an interrupt, which a test raises: a shell starts `command &` with this signal ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(test=report.nodeid, outcome="failed", text=_last_line(report.longreprtext))


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(begun=nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    _write(done=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the first phase that did not pass, else the last one."""
    if report.outcome == "passed" and report.when != "teardown":
        return
    if report.skipped and isinstance(report.longrepr, tuple):
        text = report.longrepr[2]
    else:
        text = _last_line(report.longreprtext)
    _write(test=report.nodeid, outcome=report.outcome, text=text)


def _last_line(text: str) -> str:
    """Return the line with the exception: the last one that pytest marks with E, else the last of all."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = [line.removeprefix("E").strip() for line in lines if line.startswith("E  ")]
    return (marked or lines or [""])[-1]
