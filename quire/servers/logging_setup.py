"""The log of a server process: its level, levels of single loggers, and BOOKIE_LOG_CONF."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from quire.service import log


def configure(log_level: str, levels: Mapping[str, str], wall_ms: Callable[[], int]) -> None:
    """Configure the log by the command line, the server's configuration and BOOKIE_LOG_CONF.

    Without the variable the log goes to standard error. With it, to the handlers of that file; its levels are in force,
    and those of `quireLogLevels` in front of them. A level of its root logger replaces --log-level.

    Raises ConfigError.
    """
    given = os.environ.get("BOOKIE_LOG_CONF", "")
    if not given:
        log.configure(log_level, sys.stderr, wall_ms=wall_ms, levels=levels)
        return
    # Imported here, because other servers do not wait for it.
    from quire.service.python_logging.files import apply
    from quire.service.python_logging.sink import HandlerThread

    named = dict(apply(Path(given)))
    level = named.pop("", log_level)
    usable = {name: value for name, value in named.items() if log.is_logger(name)}
    log.configure(level, sys.stderr, wall_ms=wall_ms, levels={**usable, **levels})
    handlers = HandlerThread(log.render)
    handlers.start()
    log.write_to(handlers.write)
