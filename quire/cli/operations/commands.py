"""The commands of `quire operations`. What they do is imported when one runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final

import typer

HELP: Final = "Maintain the bookies of a cluster: verify copies, recover, decommission, replace disks, restart."
COMMANDS_TEXT: Final = (
    "{id}, {host} and {port} in commands of --stop, --start and --wipe are the bookie's. Without --stop, --wipe or "
    "--start the operation prints what to do, and waits for it. In a local cluster: --stop 'scripts/cluster stop {id}' "
    "--start 'scripts/cluster start {id}'."
)
Conf = Annotated[Path | None, typer.Option(help="A bk_server.conf that names the cluster (metadataServiceUri).")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
Timeout = Annotated[float, typer.Option(metavar="S", help="Deadline of each wait except for copying.")]
Stop = Annotated[str | None, typer.Option(metavar="COMMAND", help="Shell command to stop a bookie.")]
Wipe = Annotated[str | None, typer.Option(metavar="COMMAND", help="Shell command to empty the folders of a bookie.")]
Start = Annotated[str | None, typer.Option(metavar="COMMAND", help="Shell command to start a bookie.")]
OneBookie = Annotated[str, typer.Argument(metavar="ID", help="The bookie.")]
TIMEOUT_S: Final = 300.0


def operations_app(run: Callable[[SimpleNamespace], int]) -> typer.Typer:
    """Return the command. `run` gets the name of an operation (`command`) with its options; its result is the exit
    code."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, help=HELP)

    def end(command: str, **options: Any) -> None:
        raise SystemExit(run(SimpleNamespace(command=command, **options)))

    @app.callback()
    def operations() -> None:
        pass

    @app.command("verify-replicas")
    def verify_replicas(
        ledger: Annotated[list[int] | None, typer.Option(metavar="ID", help="Only this ledger; repeatable.")] = None,
        progress_file: Annotated[
            Path | None, typer.Option(help="File for the progress; an interrupted run continues from it.")
        ] = None,
        at_once: Annotated[int, typer.Option(metavar="N", help="Ledgers read concurrently.")] = 8,
        mark: Annotated[bool, typer.Option("--mark", help="Mark ledgers with bad copies for auto recovery.")] = False,
        conf: Conf = None,
        dry_run: DryRun = False,
        json: AsJson = False,
        timeout: Timeout = TIMEOUT_S,
    ) -> None:
        """Read every copy of every ledger, and check it against its digest."""
        own = {"ledger": ledger or [], "progress_file": progress_file, "at_once": at_once, "mark": mark}
        end("verify-replicas", **own, conf=conf, dry_run=dry_run, json=json, timeout=timeout)

    @app.command("recover-bookie")
    def recover_bookie(
        bookies: Annotated[list[str], typer.Argument(metavar="ID...", help="Lost bookies.")],
        rate: Annotated[int, typer.Option(metavar="BYTES", help="Maximum bytes per second to copy; 0: no limit.")] = 0,
        delete_cookie: Annotated[
            bool, typer.Option("--delete-cookie", help="Delete the cookies of the bookies when all is done.")
        ] = False,
        conf: Conf = None,
        dry_run: DryRun = False,
        json: AsJson = False,
        timeout: Timeout = TIMEOUT_S,
    ) -> None:
        """Copy the ledgers of permanently lost bookies to other bookies, from this process."""
        own = {"bookies": bookies, "rate": rate, "delete_cookie": delete_cookie}
        end("recover-bookie", **own, conf=conf, dry_run=dry_run, json=json, timeout=timeout)

    @app.command("decommission-bookie", epilog=COMMANDS_TEXT)
    def decommission_bookie(
        bookie: OneBookie,
        no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not read every copy at the end.")] = False,
        stop: Stop = None,
        conf: Conf = None,
        dry_run: DryRun = False,
        json: AsJson = False,
        timeout: Timeout = TIMEOUT_S,
    ) -> None:
        """Remove a bookie from the cluster, after auto recovery has copied its data to others."""
        own = {"bookie": bookie, "no_verify": no_verify, "stop": stop}
        end("decommission-bookie", **own, conf=conf, dry_run=dry_run, json=json, timeout=timeout)

    @app.command("replace-disk", epilog=COMMANDS_TEXT)
    def replace_disk(
        bookie: OneBookie,
        refill: Annotated[
            bool,
            typer.Option("--refill", help="Copy the data back to this bookie; for clusters without a spare one."),
        ] = False,
        stop: Stop = None,
        wipe: Wipe = None,
        start: Start = None,
        conf: Conf = None,
        dry_run: DryRun = False,
        json: AsJson = False,
        timeout: Timeout = TIMEOUT_S,
    ) -> None:
        """Give a bookie empty folders; its data are copied to others, or back to it."""
        own = {"bookie": bookie, "refill": refill, "stop": stop, "wipe": wipe, "start": start}
        end("replace-disk", **own, conf=conf, dry_run=dry_run, json=json, timeout=timeout)

    @app.command("rolling-restart", epilog=COMMANDS_TEXT)
    def rolling_restart(
        bookies: Annotated[
            list[str] | None,
            typer.Argument(metavar="[ID]...", help="Bookies to restart; all that have a cookie, if none is given."),
        ] = None,
        stop: Stop = None,
        start: Start = None,
        conf: Conf = None,
        dry_run: DryRun = False,
        json: AsJson = False,
        timeout: Timeout = TIMEOUT_S,
    ) -> None:
        """Restart bookies one at a time, each when no ledger lacks copies."""
        own = {"bookies": bookies or [], "stop": stop, "start": start}
        end("rolling-restart", **own, conf=conf, dry_run=dry_run, json=json, timeout=timeout)

    @app.command("move-to-cluster")
    def move_to_cluster(
        data_dir: Annotated[
            Path, typer.Option(resolve_path=True, help="Data directory of the standalone server.", show_default=False)
        ],
        conf: Conf = None,
        dry_run: DryRun = False,
        json: AsJson = False,
        timeout: Timeout = TIMEOUT_S,
    ) -> None:
        """Copy the metadata of a stopped standalone server to an empty ZooKeeper.

        Its data directory becomes the first bookie's, whose bk_server.conf --conf is."""
        end("move-to-cluster", data_dir=data_dir, conf=conf, dry_run=dry_run, json=json, timeout=timeout)

    @app.command("raise-copies")
    def raise_copies(
        copies: Annotated[int, typer.Option(metavar="N", help="Copies of each entry.")] = 3,
        ack_quorum: Annotated[int, typer.Option(metavar="N", help="Ack quorum that these ledgers then have.")] = 2,
        conf: Conf = None,
        dry_run: DryRun = False,
        json: AsJson = False,
        timeout: Timeout = TIMEOUT_S,
    ) -> None:
        """Copy closed ledgers to further bookies, until each has so many copies."""
        own = {"copies": copies, "ack_quorum": ack_quorum}
        end("raise-copies", **own, conf=conf, dry_run=dry_run, json=json, timeout=timeout)

    return app
