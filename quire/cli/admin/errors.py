"""Errors of `quire admin`, with their exit codes."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
NO_ANSWER: Final = 3
DIFFERENT: Final = 4
INTERRUPTED: Final = 130
NOT_FOUND: Final = 404
"""Status of a request for something that does not exist."""


class AdminCommandError(Exception):
    """The root. The text names the thing, the rule and the remedy, and is printed as it is."""

    code = REFUSED
    passing = False


class RequestRefusedError(AdminCommandError):
    """The broker refused the request. Correct the request as the text says; `passing` is set for statuses that a retry
    can help with."""

    def __init__(self, text: str, *, status: int, passing: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.passing = passing


class CommandLineError(AdminCommandError):
    """The command line, a context or a file cannot be used, or a confirmation is missing. Nothing was requested."""

    code = USAGE


class NoAnswerError(AdminCommandError):
    """No broker answered. A retry can help; whether a change was made is unknown."""

    code = NO_ANSWER
    passing = True
