"""Run the tests of the official Python client, unchanged, against a fresh server on the standard ports.

CHECKOUT is a checkout of apache/pulsar-client-python at the version of the installed pulsar-client. Exceptions and
their reasons are in scripts/official-suite.toml. The exit code is 0 if every other test passes and no exception does, 1
if not, 2 if the suite cannot run.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from quire.service.programs.command_line import run_command
from tools.official_suite import network
from tools.official_suite.errors import SuiteError
from tools.official_suite.packages import installed
from tools.official_suite.runs import count, files, run_file
from tools.official_suite.servers import cluster, standalone
from tools.official_suite.verdict import ExceptionsError, Result, Verdict, exceptions, judge

ROOT = Path(__file__).resolve().parents[2]
EXCEPTIONS = ROOT / "scripts" / "official-suite.toml"
PACKAGES = ROOT / ".venv-suite"


def require_version(checkout: Path) -> None:
    """Raise SuiteError if the checkout is not the suite of the installed client."""
    about = checkout / "pulsar" / "__about__.py"
    try:
        found = re.search(r"__version__\s*=\s*['\"](.+?)['\"]", about.read_text())
    except OSError as error:
        raise SuiteError(f"{checkout} is no checkout of apache/pulsar-client-python: {error}") from None
    wanted = importlib.metadata.version("pulsar-client")
    if found is None or found[1] != wanted:
        version = found[1] if found else "unknown"
        raise SuiteError(
            f"{checkout} has version {version}, the installed pulsar-client {wanted}: check out that version"
        )


def report(verdict: Verdict, console: Console) -> None:
    table = Table("file", "passed", "expected exceptions", "wrong")
    numbers = {
        kind: Counter(test.partition("::")[0] for test in tests)
        for kind, tests in (("passed", verdict.passed), ("excepted", verdict.excepted), ("wrong", verdict.wrong))
    }
    for name in sorted({name for each in numbers.values() for name in each}):
        table.add_row(name, *(str(each[name]) for each in numbers.values()))
    table.add_section()
    table.add_row("all", *(str(each.total()) for each in numbers.values()))
    console.print(table)
    for title, tests in (("expected exceptions", verdict.excepted), ("wrong", verdict.wrong)):
        if tests:
            console.print(f"{title}:")
        for test, text in sorted(tests.items()):
            console.print(f"  {test}: {text}", highlight=False, markup=False, soft_wrap=True)


def run(checkout: Path, folder: Path, console: Console, *, on_cluster: bool) -> Verdict:
    """Start the server, run every file, and return the verdict. Raises SuiteError."""
    require_version(checkout)
    try:
        expected = exceptions(EXCEPTIONS.read_text(), cluster=on_cluster)
    except ExceptionsError as error:
        raise SuiteError(f"{EXCEPTIONS}: {error}") from None
    modules = installed(PACKAGES)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    results: dict[str, Result] = {}
    with (cluster if on_cluster else standalone)(folder, checkout):
        for file in files(checkout):
            begun = time.monotonic()
            found = run_file(file, modules, folder)
            results |= found
            console.print(f"{file.name}: {count(found)}, {time.monotonic() - begun:.0f} s", highlight=False)
    return judge(results, expected)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command(suite, arguments, name="scripts/official-suite", text=__doc__)


def suite(
    checkout: Annotated[Path, typer.Argument(metavar="CHECKOUT", help="Folder of the official client's source.")],
    on_cluster: Annotated[
        bool, typer.Option("--cluster", help="Run against two brokers, three bookies and ZooKeeper.")
    ] = False,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Run in a network namespace (also if a port is taken).")
    ] = False,
) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that server and tests are ended
    folder = ROOT / "out" / f"official-suite-{'cluster' if on_cluster else 'standalone'}"
    console = Console()
    try:
        why = network.obstacle()
        if network.ISOLATED not in os.environ and (isolated or why):
            require_version(checkout)
            installed(PACKAGES)  # inside there is no way to the package index
            if why:
                console.print(f"{why}: the suite runs in a network namespace", highlight=False, soft_wrap=True)
            network.isolate(
                [*(["--cluster"] if on_cluster else []), *(["--isolated"] if isolated else []), "--", str(checkout)]
            )
        if why:
            raise SuiteError(why)
        verdict = run(checkout.absolute(), folder, console, on_cluster=on_cluster)
    except SuiteError as error:
        print(f"scripts/official-suite: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    report(verdict, console)
    if not verdict.good:
        console.print(f"logs of the server and of the tests: {folder}", highlight=False, soft_wrap=True)
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
