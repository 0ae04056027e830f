"""Run one operation on the bookies of a cluster. Exit codes:

0 done (verify-replicas: every copy is good)   1 refused, failed, or bad copies   2 invalid command line   130 Ctrl-C
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import trio

from quire.cli.operations.context import OperationContext
from quire.cli.shell.context import OpenStore, Shell, open_zookeeper
from quire.cli.shell.main import confirm
from quire.cli.shell.output import Output
from quire.ledger.errors import LedgerError
from quire.metadata.errors import MetadataError
from quire.servers.cluster_config import load_config
from quire.servers.errors import CliError
from quire.service import log
from quire.service.errors import ConfigError
from quire.world.real import real_world
from quire.world.unwrap import leaves

COMMANDS_TEXT = """\
{id}, {host} and {port} in commands of --stop, --start and --wipe are the bookie's. Without --stop, --wipe or --start
the operation prints what to do, and waits for it. In a local cluster: --stop 'scripts/cluster stop {id}'
--start 'scripts/cluster start {id}'."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="quire operations", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True, metavar="NAME")

    def command(name: str, text: str, *, with_commands: Sequence[str] = ()) -> argparse.ArgumentParser:
        one = commands.add_parser(
            name,
            prog=f"quire operations {name}",
            description=text,
            help=text,
            epilog=COMMANDS_TEXT if with_commands else None,
        )
        one.add_argument("--conf", type=Path, help="a bk_server.conf that names the cluster (metadataServiceUri)")
        one.add_argument("--dry-run", action="store_true", help="only print what would be done")
        one.add_argument("--json", action="store_true", help="print JSON, one value per line")
        one.add_argument(
            "--timeout",
            type=float,
            default=300.0,
            metavar="S",
            help="deadline of each wait except for copying (default: 300)",
        )
        for each in with_commands:
            one.add_argument(f"--{each}", metavar="COMMAND", help=f"shell command to {each} a bookie")
        return one

    verify = command("verify-replicas", "Read every copy of every ledger, and check it against its digest.")
    verify.add_argument(
        "--ledger", type=int, action="append", default=[], metavar="ID", help="only this ledger; repeatable"
    )
    verify.add_argument(
        "--progress-file", type=Path, help="file for the progress; an interrupted run continues from it"
    )
    verify.add_argument("--at-once", type=int, default=8, metavar="N", help="ledgers read concurrently (default: 8)")
    verify.add_argument("--mark", action="store_true", help="mark ledgers with bad copies for auto recovery")
    recover = command(
        "recover-bookie", "Copy the ledgers of permanently lost bookies to other bookies, from this process."
    )
    recover.add_argument("bookies", nargs="+", metavar="ID")
    recover.add_argument("--rate", type=int, default=0, metavar="BYTES", help="maximum bytes per second to copy")
    recover.add_argument(
        "--delete-cookie", action="store_true", help="delete the cookies of the bookies when all is done"
    )
    decommission = command(
        "decommission-bookie",
        "Remove a bookie from the cluster, after auto recovery has copied its data to others.",
        with_commands=("stop",),
    )
    decommission.add_argument("bookie", metavar="ID")
    decommission.add_argument("--no-verify", action="store_true", help="do not read every copy at the end")
    replace = command(
        "replace-disk",
        "Give a bookie empty folders; its data are copied to others, or back to it.",
        with_commands=("stop", "wipe", "start"),
    )
    replace.add_argument("bookie", metavar="ID")
    replace.add_argument(
        "--refill", action="store_true", help="copy the data back to this bookie; for clusters without a spare one"
    )
    rolling = command(
        "rolling-restart",
        "Restart bookies one at a time, each when no ledger lacks copies.",
        with_commands=("stop", "start"),
    )
    rolling.add_argument(
        "bookies", nargs="*", metavar="ID", help="bookies to restart (default: all that have a cookie)"
    )
    move = command(
        "move-to-cluster",
        "Copy the metadata of a stopped standalone server to an empty ZooKeeper. Its data directory becomes the first "
        "bookie's, whose bk_server.conf --conf is.",
    )
    move.add_argument("--data-dir", type=os.path.abspath, required=True, help="data directory of the standalone server")
    raising = command("raise-copies", "Copy closed ledgers to further bookies, until each has so many copies.")
    raising.add_argument("--copies", type=int, default=3, metavar="N", help="copies of each entry (default: 3)")
    raising.add_argument(
        "--ack-quorum", type=int, default=2, metavar="N", help="ack quorum that these ledgers then have (default: 2)"
    )
    return made


async def run(given: argparse.Namespace, shell: Shell) -> int:
    """Run the operation. Raises ShellError, LedgerError, MetadataError."""
    async with shell.store() as store:
        return await _run(
            given, OperationContext(shell=shell, store=store, dry_run=given.dry_run, timeout_s=given.timeout)
        )


async def _run(given: argparse.Namespace, made: OperationContext) -> int:
    # Each imports what it needs.
    if given.command == "verify-replicas":
        from quire.cli.operations.verify_replicas import tell, verify_replicas

        totals = await verify_replicas(
            made,
            ledger_ids=given.ledger,
            progress_file=given.progress_file,
            at_once=max(1, given.at_once),
            mark=given.mark,
        )
        return 0 if given.dry_run else tell(made, totals)
    if given.command == "recover-bookie":
        from quire.cli.operations.recover_bookie import recover_bookie

        return await recover_bookie(made, given.bookies, rate=given.rate, delete_cookie=given.delete_cookie)
    if given.command == "decommission-bookie":
        from quire.cli.operations.decommission_bookie import decommission_bookie

        return await decommission_bookie(made, given.bookie, stop=given.stop, verify=not given.no_verify)
    if given.command == "replace-disk":
        from quire.cli.operations.replace_disk import replace_disk

        return await replace_disk(
            made, given.bookie, stop=given.stop, wipe=given.wipe, start=given.start, refill=given.refill
        )
    if given.command == "move-to-cluster":
        from quire.cli.operations.move_to_cluster import move_to_cluster

        return await move_to_cluster(made, str(given.data_dir))
    if given.command == "raise-copies":
        from quire.cli.operations.raise_copies import raise_copies

        return await raise_copies(made, given.copies, given.ack_quorum)
    from quire.cli.operations.rolling_restart import rolling_restart

    return await rolling_restart(made, given.bookies, stop=given.stop, start=given.start)


def main(
    argv: Sequence[str] | None = None,
    *,
    out: TextIO | None = None,
    err: TextIO | None = None,
    open_store: OpenStore = open_zookeeper,
) -> int:
    given = parser().parse_args(argv)
    out, err = out or sys.stdout, err or sys.stderr
    output = Output(out, err, as_json=given.json)
    try:
        shell = Shell(
            world=real_world(),
            config=load_config(given.conf),
            output=output,
            ask=partial(confirm, err, sys.stdin),
            open_store=open_store,
        )
        code = trio.run(run, given, shell)
    except KeyboardInterrupt:
        code = 130
    except BaseException as error:
        causes = list(leaves(error))
        known = (CliError, ConfigError, MetadataError, LedgerError, OSError)
        if not all(isinstance(cause, known) for cause in causes):
            raise
        for cause in causes:
            print(f"{given.command}: {cause or type(cause).__name__}", file=err)
        code = 2 if any(isinstance(cause, ConfigError) for cause in causes) else 1
    output.flush()
    return code


if __name__ == "__main__":
    log.configure("error", sys.stderr)
    sys.exit(main())
