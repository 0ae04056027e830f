"""The command line of `quire salvage`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def salvage(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Folders of entry logs (ledgerDirectories), or copies.")
    ],
    ledger: Annotated[
        list[str] | None,
        typer.Option("--ledger", "-l", help="Ledger, such as 7 or 3-5,9; repeatable.", show_default="list all ledgers"),
    ] = None,
    topic: Annotated[str, typer.Option(help="Name of the topic in the printed lines.")] = "",
    password_file: Annotated[
        Path | None, typer.Option(help="File of the password of the ledgers.", show_default="none")
    ] = None,
) -> None:
    """Print messages from the entry logs of a stopped bookie as JSON lines, also those of a deleted topic.

    `quire produce TOPIC --input json` sends them again. Nothing is written to the folders. Exit codes: 0 all of these
    ledgers was printed, 1 something is missing or damaged, 2 a folder or an option cannot be used.
    """
    from quire.cli.salvage.command import run

    raise SystemExit(run(folders, ledger or (), topic=topic, password_file=password_file))
