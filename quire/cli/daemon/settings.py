"""Settings of `quire daemon`, from the environment, with the names of BookKeeper's bkenv.sh.

    BOOKIE_CONF              configuration of the server; conf/bk_server.conf if that exists
    BOOKIE_LOG_DIR           folder of the .log and .out files; logs
    BOOKIE_PID_DIR           folder of the pid file; the log folder
    BOOKIE_START_TIMEOUT     seconds to wait for the server to be ready; 30 (Quire's own)
    BOOKIE_STOP_TIMEOUT      seconds to wait for its end; 30
    BOOKIE_ROOT_LOG_LEVEL    DEBUG, INFO, WARN or ERROR; INFO

BOOKIE_LOG_CONF is read by the server itself.

Source: names, defaults and file names of BookKeeper's bookkeeper-daemon.sh and bkenv.sh.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SERVERS: Final = ("bookie", "autorecovery", "zookeeper")
DEFAULT_CONF: Final = Path("conf/bk_server.conf")
TIMEOUT_MAX_S: Final = 3600.0
_LEVELS: Final = {"TRACE": "debug", "DEBUG": "debug", "INFO": "info", "WARN": "warning", "WARNING": "warning"}
_OF_JAVA: Final = ("BOOKIE_EXTRA_OPTS", "BOOKIE_EXTRA_CLASSPATH", "BOOKIE_ROOT_LOG_APPENDER")


class SettingsError(ValueError):
    """A setting that cannot be used; the text names the variable and the rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one server in the background."""

    server: str
    conf: Path | None
    log_dir: Path
    pid_dir: Path
    start_timeout_s: float
    stop_timeout_s: float
    log_level: str
    host: str
    program: tuple[str, ...] = (sys.executable, "-m", "quire.cli.main")
    """The command before its arguments."""
    not_read: tuple[str, ...] = ()
    """Variables that are set, and only mean something to a server in Java."""

    @property
    def pid_file(self) -> Path:
        return self.pid_dir / f"bookkeeper-{self.server}.pid"

    @property
    def out(self) -> Path:
        """The file of the server's standard output: its line `ready ...`."""
        return self.log_dir / f"bookkeeper-{self.server}-{self.host}.out"

    @property
    def log(self) -> Path:
        """The file of the server's standard error: its log, unless BOOKIE_LOG_CONF says otherwise."""
        return self.log_dir / f"bookkeeper-{self.server}-{self.host}.log"

    def arguments(self, more: tuple[str, ...]) -> list[str]:
        """Return the arguments of `quire`."""
        made = [self.server]
        if self.conf is not None and "--conf" not in more:
            made += ["--conf", str(self.conf)]
        if "--log-level" not in more:
            level = "warn" if self.server == "zookeeper" and self.log_level == "warning" else self.log_level
            made += ["--log-level", level]
        return [*made, *more]


def settings_of(server: str, environment: Mapping[str, str]) -> Settings:
    """Return the settings of a server. Raises SettingsError."""
    if server not in SERVERS:
        raise SettingsError(f"{server!r} is none of {', '.join(SERVERS)}")
    log_dir = Path(environment.get("BOOKIE_LOG_DIR") or "logs").absolute()
    given = environment.get("BOOKIE_CONF", "")
    conf: Path | None = Path(given).absolute() if given else DEFAULT_CONF.absolute()
    if server == "zookeeper":
        conf = None  # BOOKIE_CONF is not a zoo.cfg: give --conf after the command
    elif conf is not None and not conf.is_file():
        if given:
            raise SettingsError(f"BOOKIE_CONF={given} is not a file")
        conf = None
    level = (environment.get("BOOKIE_ROOT_LOG_LEVEL") or "INFO").upper()
    if level not in _LEVELS and level not in ("ERROR", "FATAL"):
        raise SettingsError(f"BOOKIE_ROOT_LOG_LEVEL={level} is none of DEBUG, INFO, WARN, ERROR")
    return Settings(
        server=server,
        conf=conf,
        log_dir=log_dir,
        pid_dir=Path(environment.get("BOOKIE_PID_DIR") or log_dir).absolute(),
        start_timeout_s=_seconds(environment, "BOOKIE_START_TIMEOUT"),
        stop_timeout_s=_seconds(environment, "BOOKIE_STOP_TIMEOUT"),
        log_level=_LEVELS.get(level, "error"),
        host=environment.get("HOSTNAME") or socket.gethostname(),
        not_read=tuple(name for name in _OF_JAVA if environment.get(name)),
    )


def _seconds(environment: Mapping[str, str], name: str) -> float:
    text = environment.get(name) or "30"
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= TIMEOUT_MAX_S:
        raise SettingsError(f"{name}={text} is not a number of seconds above 0 and up to {TIMEOUT_MAX_S:g}")
    return value
