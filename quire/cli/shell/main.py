"""`quire shell [options] command ...`: parses the command line, runs the command, returns the exit code.

    quire shell [-conf FILE | -localbookie [HOST:PORT]] [-entryformat hex|string] [-ledgeridformat long|hex|uuid]
                [-json] COMMAND ...

Exit codes are the original's: 0 done, 255 failed or not understood, 1 refused; 254 see ledgermetadata. The reason of
a failure is one line on standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TextIO

import trio

from quire.cli.shell.arguments import Arguments, CommandOption, LedgerIdFormat, OptionKind, parse
from quire.cli.shell.command import Command
from quire.cli.shell.context import OpenStore, Shell, open_zookeeper
from quire.cli.shell.entry_text import EntryFormat
from quire.cli.shell.errors import FAILED, ShellError, UsageError
from quire.cli.shell.ledger import ledgers, probes, reading
from quire.cli.shell.local import disk_files, entry_logs, indexes, journals
from quire.cli.shell.metadata import bookie_ids, bookies, cluster, cookies, overview
from quire.cli.shell.offline import bookie_cookie, consistency, conversion, formatting, rebuilding
from quire.cli.shell.output import Output
from quire.cli.shell.repair import decommission, forced_checks, marks, recovery
from quire.cli.shell.running import jobs
from quire.ledger.errors import LedgerError
from quire.metadata.errors import MetadataError
from quire.servers.cluster_config import load_config
from quire.servers.local_confs import BASE, CONFIG_FOLDER, CONFIG_VARIABLE, ORIGINALS_CONFIG_FOLDER, conf_name
from quire.service.errors import ConfigError
from quire.world.real import real_world
from quire.world.unwrap import leaves

DEFAULT_CONF: Final = Path("conf/bk_server.conf")
CONF_VARIABLE: Final = "BOOKIE_CONF"
INTERRUPTED: Final = 130

COMMANDS: Final[Mapping[str, Command]] = {
    command.name: command
    for module in (
        cluster,
        bookies,
        ledgers,
        reading,
        probes,
        cookies,
        recovery,
        decommission,
        marks,
        journals,
        entry_logs,
        indexes,
        disk_files,
        overview,
        bookie_ids,
        forced_checks,
        formatting,
        bookie_cookie,
        conversion,
        rebuilding,
        consistency,
        jobs,
    )
    for command in module.COMMANDS
}

_JSON: Final = CommandOption(name="json", help="Print one JSON value per line.")
_GLOBAL: Final = (
    CommandOption(
        name="conf",
        kind=OptionKind.TEXT,
        help=f"The bk_server.conf; default: the file in {CONF_VARIABLE}, else {DEFAULT_CONF} if it exists, else the "
        "defaults.",
    ),
    CommandOption(
        name="localbookie",
        kind=OptionKind.MAYBE_TEXT,
        help="A bookie of a local cluster (quire localbookie), by its host:port; without one, that cluster. Its "
        f"configuration is in the folder of {CONFIG_VARIABLE}, default: {CONFIG_FOLDER}.",
    ),
    CommandOption(name="entryformat", kind=OptionKind.TEXT, help="Format of printed entries: string (default) or hex."),
    CommandOption(
        name="ledgeridformat", kind=OptionKind.TEXT, help="Format of ledger ids: long (default), hex or uuid."
    ),
    _JSON,
)
_LOCAL: Final = "localbookie"
_HELP: Final = ("help", "-help", "--help", "-h")


def run_shell(
    words: Sequence[str],
    *,
    out: TextIO | None = None,
    err: TextIO | None = None,
    stdin: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
    open_store: OpenStore = open_zookeeper,
) -> int:
    """Run the words behind `quire shell`; return the exit code."""
    out, err, stdin = out or sys.stdout, err or sys.stderr, stdin or sys.stdin
    try:
        return _run(words, out, err, stdin, environment, open_store)
    except BrokenPipeError:
        # The reader of the output has closed the pipe. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:
        causes = list(leaves(error))
        if not all(
            isinstance(cause, (ShellError, ConfigError, MetadataError, LedgerError, OSError)) for cause in causes
        ):
            raise
        for cause in causes:
            print(f"quire shell: {cause or type(cause).__name__}", file=err)
        return next((cause.code for cause in causes if isinstance(cause, ShellError)), FAILED)


def _run(
    words: Sequence[str],
    out: TextIO,
    err: TextIO,
    stdin: TextIO,
    environment: Mapping[str, str],
    open_store: OpenStore,
) -> int:
    before, name, after = split(words)
    if name is None or name in _HELP:
        text = usage() if not after else _command(after[0]).usage()
        print(text, file=out if name else err)
        return 0 if name else FAILED
    general = parse(_GLOBAL, before)
    command = _command(name)
    if any(word in ("-help", "--help") for word in after) or (after == ["-h"] and name != "listbookies"):
        print(command.usage(), file=out)
        return 0
    try:
        ledger_ids = LedgerIdFormat(general.text("ledgeridformat") or "long")
        entries = EntryFormat(general.text("entryformat") or "string")
    except ValueError as error:
        raise UsageError(str(error)) from None
    options = (*command.options, _JSON)
    try:
        arguments = parse(options, after, operands=command.operands, ledger_ids=ledger_ids)
    except UsageError as error:
        raise UsageError(f"{name}: {error} (see: quire shell help {name})") from error
    output = Output(out, err, as_json=general.has("json") or arguments.has("json"))
    shell = Shell(
        world=real_world(),
        config=load_config(_conf(general, environment)),
        output=output,
        ask=partial(confirm, err, stdin),
        open_store=open_store,
        ledger_ids=ledger_ids,
        entries=entries,
    )
    code: int = trio.run(command.run, shell, arguments)
    output.flush()
    return code


def split(words: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
    """Return the options before the command, the command (None if there is none), and the rest (pure).

    >>> split(["-conf", "bk.conf", "readledger", "-l", "5"])
    (['-conf', 'bk.conf'], 'readledger', ['-l', '5'])
    """
    kinds = (OptionKind.SWITCH, OptionKind.MAYBE_TEXT)
    with_value = {option.name for option in _GLOBAL if option.kind not in kinds}
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word in _HELP:
            return list(words[:at]), word, list(words[at + 1 :])
        name = word.lstrip("-")
        has_value = name in with_value
        if name == _LOCAL:
            has_value = at + 1 < len(words) and ":" in words[at + 1]
        at += 2 if has_value else 1
    return list(words), None, []


def confirm(err: TextIO, stdin: TextIO, question: str) -> bool:
    """Ask until the answer is yes or no; the end of the input is a no."""
    while True:
        err.write(f"{question} (Y or N) ")
        err.flush()
        answer = stdin.readline()
        if answer.strip().lower() in ("y", "yes"):
            return True
        if not answer:
            err.write("\n")
        if not answer or answer.strip().lower() in ("n", "no"):
            return False


def usage() -> str:
    lines = ["usage: quire shell [options] <command> [arguments]", "", "options:"]
    lines += [f"  {option.words}\n        {option.help}" for option in _GLOBAL]
    width = max(len(name) for name in COMMANDS)
    lines += ["", "commands:", *(f"  {name:{width}}  {COMMANDS[name].help}" for name in sorted(COMMANDS))]
    return "\n".join([*lines, "", "quire shell help <command> lists its arguments."])


def _command(name: str) -> Command:
    command = COMMANDS.get(name)
    if command is None:
        raise UsageError(f"no such command: {name} (quire shell help lists them)")
    return command


def _conf(general: Arguments, environment: Mapping[str, str]) -> str | Path | None:
    if general.has(_LOCAL):
        if general.has("conf"):
            raise UsageError(f"give one of -conf and -{_LOCAL}")
        return _local_conf(general.text(_LOCAL) or BASE, environment)
    named = general.text("conf") or environment.get(CONF_VARIABLE)
    if named:
        return named
    return DEFAULT_CONF if DEFAULT_CONF.exists() else None


def _local_conf(name: str, environment: Mapping[str, str]) -> Path:
    """Return the configuration of a bookie of a local cluster, or of the cluster. Raises ShellError."""
    given = environment.get(CONFIG_VARIABLE)
    folders = (Path(given),) if given else (CONFIG_FOLDER, ORIGINALS_CONFIG_FOLDER)
    folder = next((each for each in folders if each.is_dir()), None)
    if folder is None:
        raise ShellError(
            f"there is no folder {' or '.join(map(str, folders))}: start quire localbookie, or set {CONFIG_VARIABLE}"
        )
    path = folder / conf_name(name)
    if not path.is_file():
        known = sorted(each.stem for each in folder.glob("*.conf") if each.stem != BASE)
        raise ShellError(f"there is no {path}; the local bookies are {', '.join(known) or 'none'}")
    return path
