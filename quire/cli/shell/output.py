"""What a command says: plain lines as the original prints them, or one JSON value per line.

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
"""Between two lines of progress where there is no terminal."""


class Output:
    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool = False) -> None:
        self._out = out
        self._err = err
        self.as_json = as_json

    def line(self, text: str = "") -> None:
        """A line that only people want to see."""
        if not self.as_json:
            self._out.write(f"{text}\n")

    def tell(self, text: str, **value: Any) -> None:
        """One answer: `text` for people, `value` for programs."""
        self._out.write(f"{json.dumps(value) if self.as_json else text}\n")

    def value(self, **value: Any) -> None:
        """An answer for programs alone; people were told in lines."""
        if self.as_json:
            self._out.write(f"{json.dumps(value)}\n")

    def note(self, text: str) -> None:
        """Something that happened on the way, on standard error."""
        self._err.write(f"{text}\n")
        self._err.flush()

    def flush(self) -> None:
        self._out.flush()

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show how many of `total` (None: not known) are done, by the function that is handed out, until the block ends.
        In trio."""
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
