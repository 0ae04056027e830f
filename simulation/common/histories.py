"""What all histories share: the log is watched, and the first cause of a failure is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from quire.servers.errors import InternalError
from quire.service import log
from quire.world.unwrap import leaves
from simulation.common.checkers import ViolationError, require


class Log:
    """The log lines of one history."""

    def __init__(self, events: list[log.Event]) -> None:
        self._events = events
        self._seen = 0

    def has(self, text: str) -> bool:
        """Is there such an event since the last `forget`?"""
        return any(text in event["event"] for event in self._events[self._seen :])

    def forget(self) -> None:
        """`has` looks only at what comes from now on."""
        self._seen = len(self._events)

    def check(self, announced: Sequence[str]) -> None:
        """ViolationError if a human was told to look, and no `announced` text is in what was told."""
        for event in self._events:
            is_error = log.LEVELS[event["level"]] >= log.LEVELS["error"]
            require(
                not is_error or any(text in event["event"] for text in announced),
                "NoUnannouncedErrorInTheLog",
                str(dict(event)),
            )


@contextmanager
def watched() -> Iterator[Log]:
    """Watch the log, and raise the first cause out of whatever groups of nurseries it comes in, violations first."""
    with log.captured() as events:
        try:
            yield Log(events)
        except BaseExceptionGroup as group:
            causes = [_origin(leaf) for leaf in leaves(group)]
            violations = [leaf for leaf in causes if isinstance(leaf, ViolationError)]
            raise (violations or causes)[0] from group


def _origin(error: BaseException) -> BaseException:
    """What a callback of a server raised, which has ended it with an InternalError; else the error itself."""
    return error.__cause__ if isinstance(error, InternalError) and error.__cause__ is not None else error
