"""Read the lines that the plug-in writes. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tools.official_suite.verdict import Outcome, Result


class Events:
    """Results so far of one run of pytest, and the test that runs."""

    def __init__(self) -> None:
        self.results: dict[str, Result] = {}
        self.running: str | None = None

    def take(self, lines: Iterable[str]) -> None:
        for line in lines:
            event = json.loads(line)
            if "begun" in event:
                self.running = event["begun"]
            elif "done" in event:
                self.running = None
            else:
                self._add(event["test"], Result(Outcome(event["outcome"]), event["text"]))

    def _add(self, test: str, result: Result) -> None:
        # A test may fail, and fail once more while its fixtures are undone: the first error counts.
        if test not in self.results or self.results[test].outcome is Outcome.PASSED:
            self.results[test] = result

    def stalled(self, file: str, text: str) -> None:
        """Record that the process had to be killed: in the running test, or, outside of tests, in the file."""
        self._end(file, Result(Outcome.STALLED, text))

    def died(self, file: str, text: str) -> None:
        """Record that the process ended too early, as after `stalled`."""
        self._end(file, Result(Outcome.FAILED, text))

    def _end(self, file: str, result: Result) -> None:
        self._add(self.running or file, result)
        self.running = None
