"""Key of a configuration file for the levels of single loggers."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class LogKeys:
    """Keys of logging."""

    levels: tuple[str, ...] = conf_key(
        "quireLogLevels",
        (),
        doc="Log levels of single loggers and those below them, instead of --log-level: "
        "broker.dispatch=debug,quire.ledger=warning. PUT /quire/loggers/NAME?level=debug of the web port "
        "changes them while the server runs (docs/debugging.md).",
    )
    """Read by `quire.service.log.parse_levels`."""
