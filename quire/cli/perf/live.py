"""Table of a run on a terminal, twice per second. Where standard output is none, lines are printed instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.cli.perf.meter import LoadMeter, Sample

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_BARS = " ▁▂▃▄▅▆▇█"
_SHOWN = 60


def has_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def table_of(title: str, meters: dict[str, LoadMeter]) -> Table:
    """Return the table: one row for each meter, with the last second and the whole run."""
    from rich.table import Table

    table = Table(title=title, expand=False)
    for name in ("", "messages", "msg/s", "Mbit/s", "failed", "med", "99pct", "max", "99pct of all", "last minute"):
        table.add_column(name, justify="left" if name in ("", "last minute") else "right")
    for name, meter in meters.items():
        last = meter.samples[-1] if meter.samples else Sample(0, 0, 0, 0, 0)
        total = meter.total()
        table.add_row(
            name,
            f"{meter.messages:,}",
            f"{last.rate:,.1f}",
            f"{total.mbits:,.1f}",
            f"{meter.failed:,}",
            *(f"{value * meter.unit_ms:.3f} ms" for value in (last.median, last.high, last.maximum)),
            f"{meter.whole.percentile(99) * meter.unit_ms:.3f} ms",
            sparkline([each.rate for each in meter.samples[-_SHOWN:]]),
        )
    return table


def sparkline(values: list[float]) -> str:
    """Return values as bars.

    >>> sparkline([0, 4, 8])
    ' ▄█'
    """
    top = max(values, default=0)
    if top <= 0:
        return ""
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in values)


class LiveView:
    """The table, drawn again by `update`; the last state stays on the terminal."""

    def __init__(self, title: str, meters: dict[str, LoadMeter], console: Console | None = None) -> None:
        from rich.live import Live

        self._make: Callable[[], Table] = lambda: table_of(title, meters)
        self._live = Live(self._make(), console=console, auto_refresh=False, transient=False)

    def update(self) -> None:
        """Draw what the meters have now."""
        self._live.update(self._make(), refresh=True)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.update()
        self._live.stop()
