"""Output of a command: plain lines as the original prints them, or one JSON value per line.

standard output   what was asked for
standard error    what happened besides, and progress: a bar on a terminal, else a line a second
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import trio

REPORT_S = 1.0
"""Time between two lines of progress where there is no terminal."""


class Output:
    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool = False) -> None:
        self._out = out
        self._err = err
        self.as_json = as_json

    def line(self, text: str = "") -> None:
        """Print a line of the text output only."""
        if not self.as_json:
            self._out.write(f"{text}\n")

    def tell(self, text: str, **value: Any) -> None:
        """Print one answer: `text` in the text output, `value` in JSON."""
        self._out.write(f"{json.dumps(value) if self.as_json else text}\n")

    def value(self, **value: Any) -> None:
        """Print an answer in JSON only; the text output has it in lines."""
        if self.as_json:
            self._out.write(f"{json.dumps(value)}\n")

    def note(self, text: str) -> None:
        """Print a note on standard error."""
        self._err.write(f"{text}\n")
        self._err.flush()

    def flush(self) -> None:
        self._out.flush()

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show how many of `total` (None: unknown) are done, by calls of the yielded function, until the block ends.

        Runs in trio."""
        if self._err.isatty():
            with self._bar(what, total) as moved:
                yield moved
            return
        reported = trio.current_time()

        def done(count: int) -> None:
            nonlocal reported
            if trio.current_time() - reported >= REPORT_S:
                reported = trio.current_time()
                self.note(f"{count} {what}" if total is None else f"{count} of {total} {what}")

        yield done

    @contextmanager
    def _bar(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=self._err), transient=True) as bar:
            task = bar.add_task(what, total=total)

            def done(count: int) -> None:
                bar.update(task, completed=count)

            yield done
