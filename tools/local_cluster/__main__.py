"""Run a cluster of processes on this machine, to try it out and to inject faults.

scripts/cluster up --bookies 4 --brokers 2 --zookeepers 3
scripts/cluster status
scripts/cluster kill bookie2          scripts/cluster start bookie2
scripts/cluster pause broker1         scripts/cluster resume broker1
scripts/cluster down

scripts/cluster up --secure       certificates, tokens and passwords everywhere; it prints the files of a client
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from quire.service import log
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.errors import ClusterError
from tools.local_cluster.plan import Kind, Node, Plan
from tools.local_cluster.rest import NAMESPACE
from tools.local_cluster.security import ADMIN, CLIENT, Security
from tools.local_cluster.state import FILE

DEFAULT_FOLDER = Path("out/cluster")
_SIGNALS: dict[str, Callable[[LocalCluster, Node], None]] = {
    "kill": LocalCluster.kill,
    "stop": LocalCluster.stop,
    "pause": LocalCluster.pause,
    "resume": LocalCluster.resume,
    "start": LocalCluster.start,
}
_DONE = {"kill": "killed", "stop": "stopped", "pause": "paused", "resume": "resumed", "start": "ready"}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="scripts/cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--folder", type=Path, default=DEFAULT_FOLDER, help=f"folder of all files (default: {DEFAULT_FOLDER})"
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="create a cluster, start it, wait until it is ready, and print its addresses")
    up.add_argument("--zookeepers", type=int, default=1, help="number of ZooKeeper servers: 1, 3 or 5 (default: 1)")
    up.add_argument("--bookies", type=int, default=3, help="number of bookies (default: 3)")
    up.add_argument("--brokers", type=int, default=1, help="number of brokers (default: 1)")
    up.add_argument("--recoveries", type=int, default=1, help="number of auto recovery processes (default: 1)")
    up.add_argument(
        "--session-timeout-ms",
        type=int,
        default=3000,
        help="session timeout of ZooKeeper's clients in ms (default: 3000)",
    )
    up.add_argument(
        "--secure",
        action="store_true",
        help="TLS, authentication and authorization everywhere, and no port without: see docs/operating.md",
    )
    up.add_argument("--log-level", default="", help="log level of the processes: debug, info or error")
    up.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KIND.KEY=VALUE",
        help="set a key in configuration files; KIND is zk, bookie, broker or recovery; repeatable",
    )
    down = commands.add_parser("down", help="stop all processes, and delete the folder")
    down.add_argument("--keep", action="store_true", help="keep the folder, with data and logs")
    status = commands.add_parser("status", help="list the processes and their addresses")
    status.add_argument("--json", action="store_true", help="print JSON")
    helps = {
        "kill": "send SIGKILL",
        "stop": "send SIGTERM, and wait for the end",
        "pause": "send SIGSTOP",
        "resume": "send SIGCONT",
        "start": "start a process that was killed or stopped, and wait until it is ready",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("names", nargs="+", metavar="NAME", help="name shown by status, or a bookie's id")
    commands.add_parser("add-bookie", help="start another bookie, and wait until it is ready")
    logs = commands.add_parser("logs", help="print the end of a process's log")
    logs.add_argument("name", metavar="NAME")
    logs.add_argument("-n", "--lines", type=int, default=50, help="number of lines (default: 50)")
    logs.add_argument("-f", "--follow", action="store_true", help="follow new lines, until Ctrl-C")
    return made


def settings(given: list[str]) -> dict[Kind, dict[str, object]]:
    """Return the settings of --set. Raises ValueError."""
    found: dict[Kind, dict[str, object]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        kind, dot, key = name.partition(".")
        if not equals or not dot or kind not in [each.value for each in Kind]:
            raise ValueError(f"--set {text}: not of the form KIND.KEY=VALUE, KIND being zk, bookie, broker or recovery")
        found.setdefault(Kind(kind), {})[key] = value
    return found


@contextmanager
def telling(console: Console) -> Iterator[Callable[[str], None]]:
    """Return a function that shows the current step: with a spinner on a terminal, else in lines."""
    if not console.is_terminal:
        yield lambda text: console.print(text, highlight=False)
        return
    with console.status("") as status:
        yield lambda text: status.update(text)


def up(given: argparse.Namespace, console: Console) -> None:
    plan = Plan(
        zookeepers=given.zookeepers,
        bookies=given.bookies,
        brokers=given.brokers,
        recoveries=given.recoveries,
        session_timeout_ms=given.session_timeout_ms,
        secure=given.secure,
        log_level=given.log_level,
        conf=settings(given.set),
    )
    begun = time.monotonic()
    made = LocalCluster.make(given.folder, plan)
    with ExitStack() as unless_up:
        unless_up.callback((made.folder / FILE).unlink, missing_ok=True)
        unless_up.callback(made.abandon)
        with telling(console) as say:
            made.up(say)
        unless_up.pop_all()
    console.print(f"ready after {time.monotonic() - begun:.1f} s", highlight=False)
    addresses(made, console)


def addresses(cluster: LocalCluster, console: Console) -> None:
    rows = (
        ("clients", cluster.service_url or "no broker"),
        ("web", " ".join(cluster.web_urls)),
        ("metadata", cluster.metadata_uri),
        ("shell", f"quire shell -conf {cluster.shell_conf} ..."),
        ("data, logs", str(cluster.folder)),
        *security_rows(cluster.security),
    )
    for name, value in rows:
        console.print(f"  {name:<12}{value}", highlight=False, soft_wrap=True)


def security_rows(security: Security | None) -> tuple[tuple[str, str], ...]:
    """Return the files that a client of a secure cluster needs, each with what it is."""
    if security is None:
        return ()
    return (
        ("authority", str(security.trust)),
        ("token", f"{security.token(CLIENT)} (may use topics of {NAMESPACE})"),
        ("admin token", str(security.token(ADMIN))),
    )


def condition(cluster: LocalCluster, node: Node) -> str:
    if not cluster.is_alive(node):
        return "down"
    return "paused" if cluster.is_paused(node) else "running"


def status(cluster: LocalCluster, console: Console, *, as_json: bool) -> int:
    """Print the status; return 1 if a process does not run."""
    found = {node.name: condition(cluster, node) for node in cluster.nodes()}
    if as_json:
        value = {
            "serviceUrl": cluster.service_url,
            "webUrls": cluster.web_urls,
            "metadataServiceUri": cluster.metadata_uri,
            "shellConf": str(cluster.shell_conf),
            "security": None
            if cluster.security is None
            else {
                "authority": str(cluster.security.trust),
                "token": str(cluster.security.token(CLIENT)),
                "adminToken": str(cluster.security.token(ADMIN)),
            },
            "nodes": [
                {
                    "name": node.name,
                    "kind": node.kind.name.lower(),
                    "address": node.address,
                    "condition": found[node.name],
                    "pid": cluster.state.pids[node.name].pid if node.name in cluster.state.pids else None,
                    "log": str(node.log(cluster.folder)),
                }
                for node in cluster.nodes()
            ],
        }
        print(json.dumps(value))
    else:
        table = Table()
        for column in ("name", "address", "pid", ""):
            table.add_column(column)
        for node in cluster.nodes():
            pid = cluster.state.pids.get(node.name)
            table.add_row(node.name, node.address, str(pid.pid) if pid else "", found[node.name])
        console.print(table)
        addresses(cluster, console)
    return 0 if all(each == "running" for each in found.values()) else 1


def logs(cluster: LocalCluster, name: str, lines: int, *, follow: bool) -> None:
    node = cluster.state.node(name)
    if follow:
        subprocess.run(["tail", "-n", str(lines), "-F", str(node.log(cluster.folder))], check=True)
    elif lines > 0:
        print(*cluster.log(node).splitlines()[-lines:], sep="\n")


def run(given: argparse.Namespace, console: Console) -> int:
    if given.command == "up":
        up(given, console)
        return 0
    cluster = LocalCluster.find(given.folder)
    if given.command == "status":
        return status(cluster, console, as_json=given.json)
    if given.command == "down":
        with telling(console) as say:
            cluster.down(say)
        if not given.keep:
            shutil.rmtree(cluster.folder)
        console.print(f"down{f', {cluster.folder} is kept' if given.keep else ''}", highlight=False)
    elif given.command == "logs":
        logs(cluster, given.name, given.lines, follow=given.follow)
    elif given.command == "add-bookie":
        node = cluster.add_bookie()
        console.print(f"{node.name} {node.address} ready", highlight=False)
    else:
        nodes = [cluster.state.node(name) for name in given.names]
        for node in nodes:
            _SIGNALS[given.command](cluster, node)
            console.print(f"{node.name} {_DONE[given.command]}", highlight=False)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command; return 0: done (status: all run), 1: not so, 2: impossible."""
    given = parser().parse_args(argv)
    log.configure("error", sys.stderr)
    try:
        return run(given, Console())
    except (ClusterError, ValueError) as error:
        print(f"scripts/cluster: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
