"""`python -m quire.cli.daemon`, which scripts/bookie-daemon runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from quire.cli.daemon import actions
from quire.cli.daemon.settings import SERVERS, SettingsError, settings_of

ACTIONS: Final = ("start", "stop", "status")
USAGE_TEXT: Final = f"""\
Usage: quire daemon (start|stop|status) [{"|".join(SERVERS)}] [arguments]

Starts, stops or examines a server in the background; a bookie, if none is named. The arguments of start go to the
server: `quire daemon start bookie --log-level debug`. stop takes -force: kill it if it has not ended in time.

Variables: BOOKIE_CONF, BOOKIE_LOG_DIR, BOOKIE_PID_DIR, BOOKIE_START_TIMEOUT, BOOKIE_STOP_TIMEOUT,
BOOKIE_ROOT_LOG_LEVEL, BOOKIE_LOG_CONF (docs/operating.md, "A bookie in the background")."""
FORCE: Final = ("-force", "--force")


def run(arguments: Sequence[str], environment: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Run the command; return the exit code."""
    given = list(arguments)
    if given and given[0] in ("help", "-h", "--help"):
        print(USAGE_TEXT, file=out)
        return 0
    action = given.pop(0) if given else ""
    server = given.pop(0) if given and not given[0].startswith("-") else "bookie"
    force = action == "stop" and any(each in FORCE for each in given)
    rest = tuple(each for each in given if not (action == "stop" and each in FORCE))
    if action not in ACTIONS or (action != "start" and rest):
        wrong = f"unknown argument {rest[0]}" if action in ACTIONS else f"{action or 'nothing'} is no action"
        print(f"quire daemon: {wrong}\n{USAGE_TEXT}", file=err)
        return actions.FAILED

    def tell(text: str) -> None:
        print(text, file=out, flush=True)

    try:
        settings = settings_of(server, environment)
        if action == "start":
            return actions.start(settings, rest, tell)
        if action == "stop":
            return actions.stop(settings, tell, force=force)
        return actions.status(settings, tell)
    except (SettingsError, actions.BusyError, OSError) as error:
        print(f"quire daemon: {error}", file=err)
        return actions.FAILED


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:], os.environ, sys.stdout, sys.stderr))
