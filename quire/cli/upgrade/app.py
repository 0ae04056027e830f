"""The command line of `quire upgrade`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def upgrade(
    conf: Annotated[Path, typer.Option("--conf", "-c", help="The bk_server.conf of the bookie.")],
    do_upgrade: Annotated[bool, typer.Option("--upgrade", "-u", help="Upgrade the directories.")] = False,
    do_rollback: Annotated[
        bool, typer.Option("--rollback", "-r", help="Bring back the layout before the upgrade.")
    ] = False,
    do_finalize: Annotated[bool, typer.Option("--finalize", "-f", help="Remove what a rollback would need.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --rollback: lose what the bookie has stored since the upgrade.")
    ] = False,
) -> None:
    """Upgrade the directories of a stopped bookie from a layout of BookKeeper before 4.0, and back.

    Directories in the present layout need no upgrade. Exit codes: 0 done, or nothing to do; 1 refused or failed; 2 the
    command line or the configuration cannot be used. Each step may be killed, and is finished by the same command.
    """
    from quire.cli.upgrade.command import run

    chosen = [
        name for name, given in (("upgrade", do_upgrade), ("rollback", do_rollback), ("finalize", do_finalize)) if given
    ]
    if len(chosen) != 1:
        raise typer.BadParameter("give one of --upgrade, --rollback, --finalize")
    raise SystemExit(run(conf, chosen[0], force=force))
