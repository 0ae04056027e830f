"""Key of a configuration file for the levels of single loggers."""

from __future__ import annotations

from quire.service.config import conf_key
from quire.service.log import KEY


def log_levels_key() -> tuple[str, ...]:
    """Return the field of a configuration that has the key; `quire.service.log.parse_levels` reads its value."""
    return conf_key(
        KEY,
        (),
        doc="Log levels of single loggers and those below them, in place of --log-level: broker.dispatch=debug,quire.ledger=warning. "
        "PUT /quire/loggers/NAME?level=debug of the web port changes them while the server runs (docs/debugging.md).",
    )
