"""The terminal of `quire top`: reads keys, asks the broker in a thread, and draws what came last.

At most one request is under way. Keys are obeyed while it is, and the picture stays what it was until its answer comes.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from quire.cli.admin.connection import RequestSender
from quire.cli.admin.errors import AdminCommandError
from quire.cli.admin.verbs import ROOT, Request
from quire.cli.top.state import TopState, keys_of, pressed
from quire.cli.top.view import picture
from quire.wire.pulsar.names import TopicName

STEP_S: Final = 0.1
"""Time to wait for a key before the answer is looked at."""


def asked(sender: RequestSender, state: TopState, count: int) -> Any:
    """Return the answer of the broker. Raises AdminCommandError."""
    query = {"sort": state.sort, "count": count, **({"filter": state.filter} if state.filter else {})}
    return sender.send(Request("GET", f"{ROOT}quireTop?{urlencode(query)}"))


def explanation(sender: RequestSender, detail: str) -> Any:
    """Return the explanation of a topic, or of one of its subscriptions, or the text of the refusal."""
    topic, _, subscription = detail.partition("?")
    name = TopicName.parse(topic)
    path = f"{ROOT}{name.domain}/{name.namespace_path}/{quote(name.local, safe='')}"
    part = f"/subscription/{quote(subscription, safe='')}" if subscription else ""
    try:
        return sender.send(Request("GET", f"{path}{part}/explain"))
    except AdminCommandError as error:
        return str(error)


class TopScreen:
    """One run on a terminal."""

    def __init__(self, sender: RequestSender, state: TopState, *, interval_s: float, count: int) -> None:
        """`count`: rows that are asked for."""
        self._sender = sender
        self._state = state
        self._interval_s = interval_s
        self._count = count
        self._answer: dict[str, Any] = {}
        self._detail: Any = None
        self._error = ""
        self._drawn: object = None
        """Values that the picture was made of."""
        self._due = 0.0
        self._asked: Future[tuple[TopState, Any, Any]] | None = None

    def run(self) -> None:
        """Show until a key ends it. Ctrl-C raises KeyboardInterrupt."""
        from rich.console import Console
        from rich.live import Live

        console = Console()
        decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        with (
            _keys() as keyboard,
            ThreadPoolExecutor(1) as thread,
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):
            while not self._state.ended:
                self._request(thread)
                drawn = (self._state, id(self._answer), id(self._detail), self._error, console.size)
                if drawn != self._drawn:
                    self._drawn = drawn
                    height = console.size.height
                    shown = picture(self._state, self._answer, detail=self._detail, error=self._error, height=height)
                    live.update(shown, refresh=True)
                readable, _, _ = select.select([keyboard], [], [], STEP_S)
                if readable:
                    data = os.read(keyboard, 1024)
                    if not data:
                        return  # the terminal is gone
                    for key in keys_of(decoder.decode(data)):
                        self._press(key)

    def _press(self, key: str) -> None:
        before, self._state = self._state, pressed(self._state, key, self._answer)
        if before.detail != self._state.detail:
            self._detail = None
        if before.question != self._state.question or before.detail != self._state.detail:
            self._due = 0.0

    def _request(self, thread: ThreadPoolExecutor) -> None:
        """Take an answer that has come, and ask again if it is time."""
        if self._asked is not None:
            if not self._asked.done():
                return
            try:
                state, answer, detail = self._asked.result()
                self._error = ""
                if state.question == self._state.question:
                    self._answer = answer
                if state.detail == self._state.detail:
                    self._detail = detail
            except AdminCommandError as error:
                self._error = str(error)
            self._asked = None
        now = time.monotonic()
        if now >= self._due and not (self._state.paused and self._answer and self._due):
            self._due = now + self._interval_s
            self._asked = thread.submit(self._ask, replace(self._state))

    def _ask(self, state: TopState) -> tuple[TopState, Any, Any]:
        answer = asked(self._sender, state, self._count)
        return state, answer, explanation(self._sender, state.detail) if state.detail else None


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Yield the descriptor of a terminal that gives each key at once, without showing it."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
