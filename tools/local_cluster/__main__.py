"""Run a cluster of processes on this machine, to try it out and to inject faults.

scripts/cluster up --bookies 4 --brokers 2 --zookeepers 3
scripts/cluster status
scripts/cluster kill bookie2          scripts/cluster start bookie2
scripts/cluster pause broker1         scripts/cluster resume broker1
scripts/cluster down

scripts/cluster up --secure       certificates, tokens and passwords everywhere; it prints the files of a client
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from quire.service import log
from quire.service.programs.command_line import ending, help_of, run_app
from tools.local_cluster import actions
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.errors import ClusterError
from tools.local_cluster.plan import Plan

DEFAULT_FOLDER: Final = Path("out/cluster")
SIGNALS: Final = {
    "kill": "Send SIGKILL.",
    "stop": "Send SIGTERM, and wait for the end.",
    "pause": "Send SIGSTOP.",
    "resume": "Send SIGCONT.",
    "start": "Start a process that was killed or stopped, and wait until it is ready.",
}
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names shown by status, or ids of bookies.")]


def cluster_app() -> typer.Typer:
    """Return the command. Its commands get the folder as the object of their context."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=help_of(__doc__))
    app.callback()(cluster)
    app.command("up")(ending(up))
    app.command("down")(ending(down))
    app.command("status")(ending(status))
    for name, text in SIGNALS.items():
        app.command(name, help=text)(ending(signal))
    app.command("add-bookie")(ending(add_bookie))
    app.command("logs")(ending(logs))
    return app


def cluster(
    context: typer.Context, folder: Annotated[Path, typer.Option(help="Folder of all files.")] = DEFAULT_FOLDER
) -> None:
    context.obj = folder


def up(
    context: typer.Context,
    zookeepers: Annotated[int, typer.Option(help="Number of ZooKeeper servers: 1, 3 or 5.")] = 1,
    bookies: Annotated[int, typer.Option(help="Number of bookies.")] = 3,
    brokers: Annotated[int, typer.Option(help="Number of brokers.")] = 1,
    recoveries: Annotated[int, typer.Option(help="Number of auto recovery processes.")] = 1,
    session_timeout_ms: Annotated[int, typer.Option(help="Session timeout of ZooKeeper's clients in ms.")] = 3000,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="TLS, authentication and authorization everywhere, and no port without: see docs/operating.md.",
        ),
    ] = False,
    log_level: Annotated[str, typer.Option(help="Log level of the processes: debug, info or error.")] = "",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KIND.KEY=VALUE",
            help="Set a key in configuration files; KIND is zk, bookie, broker or recovery; repeatable.",
        ),
    ] = None,
) -> int:
    """Create a cluster, start it, wait until it is ready, and print its addresses."""
    plan = Plan(
        zookeepers=zookeepers,
        bookies=bookies,
        brokers=brokers,
        recoveries=recoveries,
        session_timeout_ms=session_timeout_ms,
        secure=secure,
        log_level=log_level,
        conf=actions.settings(set_ or []),
    )
    actions.up(context.obj, plan, Console())
    return 0


def down(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder, with data and logs.")] = False,
) -> int:
    """Stop all processes, and delete the folder."""
    actions.down(LocalCluster.find(context.obj), Console(), keep=keep)
    return 0


def status(context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> int:
    """List the processes and their addresses."""
    return actions.status(LocalCluster.find(context.obj), Console(), as_json=as_json)


def signal(context: typer.Context, names: Names) -> int:
    actions.signal(LocalCluster.find(context.obj), Console(), context.info_name or "", names)
    return 0


def add_bookie(context: typer.Context) -> int:
    """Start another bookie, and wait until it is ready."""
    actions.add_bookie(LocalCluster.find(context.obj), Console())
    return 0


def logs(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name shown by status, or id of a bookie.")],
    lines: Annotated[int, typer.Option("--lines", "-n", help="Number of lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new lines, until Ctrl-C.")] = False,
) -> int:
    """Print the end of a process's log."""
    actions.logs(LocalCluster.find(context.obj), name, lines, follow=follow)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0: done (status: all run), 1: not so, 2: impossible."""
    log.configure("error", sys.stderr)
    try:
        return run_app(cluster_app(), argv, name="scripts/cluster")
    except (ClusterError, ValueError) as error:
        print(f"scripts/cluster: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
