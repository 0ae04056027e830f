"""The picture of `quire top` (pure): tables of rich, made of a state and an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from quire.cli.admin.rendering.human import duration, rate, size
from quire.cli.top.state import Page, TopState, rows

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

KEYS: Final = (
    "t topics  s standing still  b bookies  r/l/a by rate, lag, age  / filter  ↑↓ Enter explain  p pause  q quit"
)
FRAME_LINES: Final = 6
"""Lines beside the rows of a table."""


def picture(
    state: TopState, answer: dict[str, Any], *, detail: Any = None, error: str = "", height: int = 24
) -> RenderableType:
    """Return what is drawn. `height`: lines of the terminal."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = [Text(summary(answer), no_wrap=True, overflow="ellipsis")]
    if error:
        lines.append(Text(f"no answer: {error}", style="bold", no_wrap=True, overflow="ellipsis"))
    if state.detail:
        lines += explained(state.detail, detail)
        lines.append(Text("Esc back  q quit", style="dim"))
        return Group(*lines)
    lines.append(Text(heading(state), style="bold"))
    lines.append(table(state, answer, rows_max=max(1, height - FRAME_LINES - bool(error))))
    lines.append(Text(KEYS, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def summary(answer: dict[str, Any]) -> str:
    """Return one line about the cluster."""
    brokers = answer.get("brokers", [])
    repairs = answer.get("repairs", {})
    count = repairs.get("underReplicated", 0)
    parts = [
        f"{len(brokers)} broker{'s' * (len(brokers) != 1)}",
        f"{sum(each['topics'] for each in brokers):,} topics",
        f"in {rate(sum(each['msgRateIn'] for each in brokers))}",
        f"out {rate(sum(each['msgRateOut'] for each in brokers))}",
        f"{count:,}{' or more' * bool(repairs.get('more'))} ledgers to repair",
    ]
    if repairs.get("disabled"):
        parts.append("auto recovery is DISABLED")
    if answer.get("silent"):
        parts.append(f"no answer from {', '.join(answer['silent'])}")
    return "  ".join(parts)


def heading(state: TopState) -> str:
    """Return the title of the table."""
    found = f"{state.page.value}"
    if state.page is Page.TOPICS:
        found += f" by {state.sort}"
    if state.filter or state.typing:
        found += f"   filter: {state.filter}{'_' * state.typing}"
    return found + ("   paused" if state.paused else "")


def table(state: TopState, answer: dict[str, Any], *, rows_max: int | None) -> Table:
    """Return the table of a page, with the rows around the selected one. `rows_max`: None for all, none selected."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, expand=False)
    names, cells = _COLUMNS[state.page]
    if rows_max is not None:
        made.add_column("")  # (the mark of the selected row)
    for name in names:
        right = name not in ("topic", "subscription", "cause", "why", "bookie", "state", "broker")
        made.add_column(name, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
    found = rows(state, answer)
    selected = min(state.selected, len(found) - 1)
    first = 0 if rows_max is None else max(0, selected - rows_max + 1)
    for index, row in enumerate(found[first : None if rows_max is None else first + rows_max], first):
        chosen = index == selected
        mark = [] if rows_max is None else [">" if chosen else " "]
        made.add_row(*mark, *cells(row), style="reverse" if mark and chosen else None)
    return made


def explained(name: str, detail: Any) -> list[RenderableType]:
    """Return the explanation of a topic or subscription."""
    from rich.text import Text

    lines: list[RenderableType] = [Text(name.replace("?", "  subscription "), style="bold")]
    if detail is None:
        return [*lines, Text("...")]
    if isinstance(detail, str):
        return [*lines, Text(detail)]
    for found in _explanations(detail):
        lines.append(Text(f"{found['subject']}: {found['state']} ({found['cause']})", style="bold"))
        lines.append(Text(f"  {found['sentence']}"))
        if found["remedy"]:
            lines.append(Text(f"  {found['remedy']}", style="italic"))
    return lines


def _explanations(detail: Any) -> list[dict[str, Any]]:
    if "cause" in detail:
        return [detail]
    found = [detail["producers"], *detail["subscriptions"].values(), *detail["ledgers"]]
    return [each for each in found if "cause" in each]


def _topic(row: dict[str, Any]) -> list[str]:
    return [
        short(row["topic"]),
        f"{row['msgRateIn']:,.1f}",
        f"{row['msgRateOut']:,.1f}",
        f"{size(row['msgThroughputIn'])}/s",
        f"{row['backlog']:,}",
        size(row["backlogSize"]),
        age(row["ageSeconds"]),
        str(row["producers"]),
        str(row["consumers"]),
    ]


def _stuck(row: dict[str, Any]) -> list[str]:
    return [short(row["topic"]), row["subscription"], f"{row['backlog']:,}", row["cause"], row["sentence"]]


def _bookie(row: dict[str, Any]) -> list[str]:
    total, free = row["total"], row["free"]
    return [
        row["bookie"],
        row["state"],
        "?" if row["latencyMs"] < 0 else f"{row['latencyMs']:.1f} ms",
        str(row["pendingReads"]),
        "?" if free < 0 else size(free),
        "?" if total <= 0 else f"{100 * (total - free) / total:.0f} %",
    ]


_COLUMNS: Final = {
    Page.TOPICS: (("topic", "in/s", "out/s", "bytes in", "lag", "lag bytes", "age", "producers", "consumers"), _topic),
    Page.STUCK: (("topic", "subscription", "lag", "cause", "why"), _stuck),
    Page.BOOKIES: (("bookie", "state", "latency", "reads", "free", "used"), _bookie),
}


def short(name: str) -> str:
    """Return the name of a topic without what is the default.

    >>> short("persistent://public/default/a"), short("persistent://t/n/a"), short("non-persistent://t/n/a")
    ('a', 't/n/a', 'non-persistent://t/n/a')
    """
    return name.removeprefix("persistent://").removeprefix("public/default/")


def age(seconds: float) -> str:
    """Return how long the oldest message waits; empty if none does."""
    return "" if seconds < 0 else duration(seconds)
