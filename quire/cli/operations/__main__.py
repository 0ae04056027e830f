"""Run one operation on the bookies of a cluster. Exit codes:

0 done (verify-replicas: every copy is good)   1 refused, failed, or bad copies   2 invalid command line   130 Ctrl-C
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, TextIO

import trio
import typer

from quire.cli.lazy import command_of
from quire.cli.operations.commands import operations_app
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

Given = SimpleNamespace
"""The name of an operation (`command`), and its options."""


async def run(given: Given, shell: Shell) -> int:
    """Run the operation. Raises ShellError, LedgerError, MetadataError."""
    async with shell.store() as store:
        return await _run(
            given, OperationContext(shell=shell, store=store, dry_run=given.dry_run, timeout_s=given.timeout)
        )


async def _run(given: Given, made: OperationContext) -> int:
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


def execute(
    given: Given, *, out: TextIO | None = None, err: TextIO | None = None, open_store: OpenStore = open_zookeeper
) -> int:
    """Run an operation; return its exit code."""
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


def command(run: Callable[[Given], int] = execute) -> Any:
    """Return `quire operations` as a command."""
    return command_of(operations_app(run))


def main(
    argv: Sequence[str] | None = None,
    *,
    out: TextIO | None = None,
    err: TextIO | None = None,
    open_store: OpenStore = open_zookeeper,
) -> int:
    """Run the command line; return the exit code."""
    made = command(partial(execute, out=out, err=err, open_store=open_store))
    try:
        made.main(None if argv is None else list(argv), prog_name="quire operations")
    except SystemExit as end:
        return int(end.code or 0)
    except typer.Exit as end:
        return end.exit_code
    return 0


if __name__ == "__main__":
    log.configure("error", sys.stderr)
    sys.exit(main())
