"""State of the view of `quire top`, and its change by a key (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

SORTS: Final = {"r": "rate", "l": "lag", "a": "age"}
"""Orders of the topics, by key."""
UP: Final = "up"
DOWN: Final = "down"
ENTER: Final = "enter"
ESCAPE: Final = "escape"
BACKSPACE: Final = "backspace"
TAB: Final = "tab"
_SEQUENCES: Final = {
    "\x1b[A": UP,
    "\x1b[B": DOWN,
    "\x1bOA": UP,
    "\x1bOB": DOWN,
    "\r": ENTER,
    "\n": ENTER,
    "\x1b": ESCAPE,
    "\x7f": BACKSPACE,
    "\b": BACKSPACE,
    "\t": TAB,
}
FILTER_MAX: Final = 200


class Page(Enum):
    """Tables, in the order of the key TAB."""

    TOPICS = "topics"
    STUCK = "standing still"
    BOOKIES = "bookies"


@dataclass(frozen=True, slots=True)
class TopState:
    """State of the view."""

    page: Page = Page.TOPICS
    sort: str = "rate"
    filter: str = ""
    typing: bool = False
    """True while the filter is typed."""
    selected: int = 0
    """Row of the table."""
    detail: str = ""
    """Path of the explanation that is shown; empty: none."""
    paused: bool = False
    ended: bool = False

    @property
    def question(self) -> tuple[str, str]:
        """Return what the answer of the broker depends on."""
        return self.sort, self.filter


def keys_of(text: str) -> list[str]:
    """Return the keys that a terminal has sent.

    >>> keys_of("l" + chr(27) + "[B" + chr(13) + "/x")
    ['l', 'down', 'enter', '/', 'x']
    """
    found: list[str] = []
    at = 0
    while at < len(text):
        for length in (3, 1):
            key = _SEQUENCES.get(text[at : at + length])
            if key is not None:
                break
        else:
            length, key = 1, text[at] if text[at].isprintable() else ""
            if text.startswith("\x1b[", at):  # (another key with a sequence of its own)
                length = len(text) - at
                key = ""
        if key:
            found.append(key)
        at += length
    return found


def rows(state: TopState, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the page that is shown."""
    name = {Page.TOPICS: "topics", Page.STUCK: "stuck", Page.BOOKIES: "bookies"}[state.page]
    found: list[dict[str, Any]] = answer.get(name, [])
    return found


def pressed(state: TopState, key: str, answer: dict[str, Any]) -> TopState:
    """Return the state after a key."""
    if state.typing:
        return _typed(state, key)
    if state.detail:
        return replace(state, detail="", ended=key == "q") if key in (ESCAPE, ENTER, BACKSPACE, "q") else state
    last = max(0, len(rows(state, answer)) - 1)
    if key == "q":
        return replace(state, ended=True)
    if key in SORTS:
        return replace(state, page=Page.TOPICS, sort=SORTS[key], selected=0)
    if key == TAB:
        pages = list(Page)
        return replace(state, page=pages[(pages.index(state.page) + 1) % len(pages)], selected=0)
    if key in ("t", "s", "b"):
        return replace(state, page={"t": Page.TOPICS, "s": Page.STUCK, "b": Page.BOOKIES}[key], selected=0)
    if key in (UP, "k"):
        return replace(state, selected=max(0, min(state.selected, last) - 1))
    if key in (DOWN, "j"):
        return replace(state, selected=min(last, state.selected + 1))
    if key == "/":
        return replace(state, typing=True)
    if key == ESCAPE:
        return replace(state, filter="", selected=0)
    if key in ("p", " "):
        return replace(state, paused=not state.paused)
    if key == ENTER and (found := rows(state, answer)) and state.page is not Page.BOOKIES:
        row = found[min(state.selected, last)]
        part = f"?{row['subscription']}" if state.page is Page.STUCK else ""
        return replace(state, detail=f"{row['topic']}{part}")
    return state


def _typed(state: TopState, key: str) -> TopState:
    if key == ENTER:
        return replace(state, typing=False, selected=0)
    if key == ESCAPE:
        return replace(state, typing=False, filter="", selected=0)
    if key == BACKSPACE:
        return replace(state, filter=state.filter[:-1])
    if len(key) == 1 and len(state.filter) < FILTER_MAX:
        return replace(state, filter=state.filter + key)
    return state
