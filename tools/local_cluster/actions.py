"""Actions of the commands of scripts/cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Node, Plan
from tools.local_cluster.rest import NAMESPACE
from tools.local_cluster.security import ADMIN, CLIENT, Security
from tools.local_cluster.state import FILE

_SIGNALS: dict[str, Callable[[LocalCluster, Node], None]] = {
    "kill": LocalCluster.kill,
    "stop": LocalCluster.stop,
    "pause": LocalCluster.pause,
    "resume": LocalCluster.resume,
    "start": LocalCluster.start,
}
_DONE = {"kill": "killed", "stop": "stopped", "pause": "paused", "resume": "resumed", "start": "ready"}


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


def up(folder: Path, plan: Plan, console: Console) -> None:
    begun = time.monotonic()
    made = LocalCluster.make(folder, plan)
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


def down(cluster: LocalCluster, console: Console, *, keep: bool) -> None:
    with telling(console) as say:
        cluster.down(say)
    if not keep:
        shutil.rmtree(cluster.folder)
    console.print(f"down{f', {cluster.folder} is kept' if keep else ''}", highlight=False)


def signal(cluster: LocalCluster, console: Console, verb: str, names: list[str]) -> None:
    nodes = [cluster.state.node(name) for name in names]
    for node in nodes:
        _SIGNALS[verb](cluster, node)
        console.print(f"{node.name} {_DONE[verb]}", highlight=False)


def add_bookie(cluster: LocalCluster, console: Console) -> None:
    node = cluster.add_bookie()
    console.print(f"{node.name} {node.address} ready", highlight=False)
