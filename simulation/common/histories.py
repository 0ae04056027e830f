"""Common parts of all histories: the watched log, and the search for the first cause of a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from quire.servers.errors import InternalError
from quire.service import log
from quire.world.unwrap import leaves
from simulation.common.checkers import ViolationError, require


class Log:
    """Log lines of one history."""

    def __init__(self, events: list[log.Event]) -> None:
        self._events = events
        self._seen = 0

    def has(self, text: str) -> bool:
        """Return whether there is such an event since the last `forget`."""
        return any(text in event["event"] for event in self._events[self._seen :])

    def forget(self) -> None:
        """Limit `has` to later events."""
        self._seen = len(self._events)

    def check(self, announced: Sequence[str]) -> None:
        """Raise ViolationError for an ERROR in the log, unless it contains one of the `announced` texts."""
        for event in self._events:
            is_error = log.LEVELS[event["level"]] >= log.LEVELS["error"]
            require(
                not is_error or any(text in event["event"] for text in announced),
                "NoUnannouncedErrorInTheLog",
                str(dict(event)),
            )


@contextmanager
def watched() -> Iterator[Log]:
    """Watch the log, and raise the first cause out of any groups of nurseries, violations first."""
    with log.captured() as events:
        try:
            yield Log(events)
        except BaseExceptionGroup as group:
            causes = [_origin(leaf) for leaf in leaves(group)]
            violations = [leaf for leaf in causes if isinstance(leaf, ViolationError)]
            raise (violations or causes)[0] from group


def _origin(error: BaseException) -> BaseException:
    """Return the exception of a callback that ended a server with an InternalError; else the error itself."""
    return error.__cause__ if isinstance(error, InternalError) and error.__cause__ is not None else error
