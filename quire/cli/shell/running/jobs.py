"""scrub, dataintegrity: jobs of a running bookie, over its HTTP port. The original's shell has neither."""

from __future__ import annotations

import datetime
from functools import partial
from typing import Any, Final

import httpx2

from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError

ANSWER_S: Final = 30.0
ANY: Final = ("0.0.0.0", "::", "")
_URL: Final = CommandOption(
    name="url",
    short="u",
    kind=OptionKind.TEXT,
    help="The bookie's HTTP port, http://HOST:PORT; default: httpServerHost and httpServerPort of the configuration.",
)


async def scrub(shell: Shell, arguments: Arguments) -> int:
    wanted: dict[str, object] = {}
    if arguments.has("rate"):
        wanted["entriesPerSecond"] = arguments.number("rate")
    if arguments.has("now"):
        wanted["begin"] = True
    found = await _ask(shell, arguments, "scrub", wanted)
    shell.output.value(**found)
    line = shell.output.line
    line(f"scrub: {'runs' if found['running'] else 'rests'}, {found['entriesPerSecond']} entries per second")
    line(
        f"since the start: {found['rounds']} rounds, {found['entriesRead']} entries read, "
        f"{found['damagedEntries']} damaged, {found['healedEntries']} healed, "
        f"{found['entriesWithoutRow']} without a row in the index, {found['rowsWritten']} rows written"
    )
    if found["lastFailure"]:
        line(f"last failure: {found['lastFailure']}")
    for each in found["directories"]:
        line(
            f"{each['directory']}: last whole scrub {_time(each['roundEnded'])}, {each['logsRead']} logs, "
            f"{each['damagedEntries']} damaged entries in {each['damagedLedgers']} ledgers"
        )
        for ledger in each["firstDamagedLedgers"]:
            line(
                f"  ledger {shell.ledger_ids.write(ledger['ledger'])}: {ledger['entries']} entries from "
                f"{ledger['firstEntry']} on: {ledger['reason']}"
                + (f"; not healed: {ledger['notHealed']}" if ledger["notHealed"] else "")
            )
        for log in each["logs"]:
            if log["damage"]:
                line(f"  log {log['log']}: {log['damage']}")
    return 0


async def data_integrity(shell: Shell, arguments: Arguments) -> int:
    found = await _ask(shell, arguments, "data_integrity", {})
    shell.output.value(**found)
    line = shell.output.line
    count = found["ledgersInLimbo"]
    line(f"data integrity check: {'runs' if found['running'] else 'rests'}, {count} ledgers in limbo")
    line(
        f"since the start: {found['rounds']} rounds, {found['ledgersSettled']} ledgers whole again, "
        f"{found['entriesCopied']} entries ({found['bytesCopied']} bytes) copied"
    )
    if found["lastFailure"]:
        line(f"last failure: {found['lastFailure']}")
    for ledger_id in found["firstLedgersInLimbo"]:
        line(f"  ledger {shell.ledger_ids.write(ledger_id)}")
    return 0


def _time(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="seconds") if ms else "never"


async def _ask(shell: Shell, arguments: Arguments, resource: str, body: dict[str, object]) -> dict[str, Any]:
    """Return the answer about a job, after a PUT of `body` if that has anything. ShellError."""
    url = f"{_base(shell, arguments)}/api/v1/bookie/{resource}"
    return await shell.world.offload.run(partial(_answer, url, body), name="http")


def _base(shell: Shell, arguments: Arguments) -> str:
    named = arguments.text("url")
    if named:
        return named.rstrip("/")
    http = shell.config.http
    if not http.enabled:
        raise ShellError("the bookie of this configuration has no HTTP port: set httpServerEnabled=true, or give -url")
    if http.tls_enabled:
        raise ShellError("the HTTP port has TLS and wants a client's certificate: use curl with one")
    return f"http://{'127.0.0.1' if http.host in ANY else http.host}:{http.port}"


def _answer(url: str, body: dict[str, object]) -> dict[str, Any]:
    try:
        answer = httpx2.request("PUT" if body else "GET", url, json=body or None, timeout=ANSWER_S)
    except httpx2.HTTPError as error:
        raise ShellError(f"{url} does not answer: {error or type(error).__name__}") from error
    if not answer.is_success:
        raise ShellError(f"{url} answers {answer.status_code}: {answer.text.strip()}")
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ShellError(f"{url} does not answer as a bookie of Quire does")
    return found


COMMANDS = (
    Command(
        name="scrub",
        help="Show when a running bookie read its stored entries last, and what is damaged; begin a scrub.",
        run=scrub,
        options=(
            CommandOption(name="now", short="n", help="Begin a scrub, or go on with one, now."),
            CommandOption(
                name="rate",
                short="r",
                kind=OptionKind.NUMBER,
                minimum=1,
                help="Entries per second, until the bookie is restarted (localScrubRateLimit).",
            ),
            _URL,
        ),
    ),
    Command(
        name="dataintegrity",
        help="Show what a running bookie has copied back after a loss, and the ledgers that are still in limbo.",
        run=data_integrity,
        options=(_URL,),
    ),
)
