"""The command line of `quire doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def doctor(
    data_dir: Annotated[
        Path | None, typer.Option(help="Data directory of a standalone server; it need not exist yet.")
    ] = None,
    conf: Annotated[
        Path | None, typer.Option(help="Configuration file of a broker, a standalone server or a bookie.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Web address of a running server.")] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="Server that --conf is for: standalone, broker or bookie.", show_default="by the name of the file"
        ),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="With --url: file of a token.")] = None,
    trust_file: Annotated[Path | None, typer.Option(help="With --url: PEM file of trusted authorities.")] = None,
    tls_cert_file: Annotated[
        Path | None, typer.Option(help="With --url: PEM file of the own certificate, for a port that demands one.")
    ] = None,
    tls_key_file: Annotated[Path | None, typer.Option(help="With --url: PEM file of its key.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")] = False,
) -> None:
    """Examine a machine, a configuration and the folders of a stopped server, or a running server, and print remedies.

    Before a start: --conf, or --data-dir, or both. A running server: --url. Nothing is changed. Exit codes: 0 nothing
    is bad, 1 something is bad or damaged, 2 not examined (a server uses the folders).
    """
    from quire.cli.checkup.command import run

    if server not in (None, "standalone", "broker", "bookie"):
        raise typer.BadParameter(f"{server!r} is none of standalone, broker, bookie", param_hint="--server")
    if (tls_cert_file is None) != (tls_key_file is None):
        raise typer.BadParameter("a certificate needs its key: give both", param_hint="--tls-cert-file, --tls-key-file")
    certificate = None if tls_cert_file is None or tls_key_file is None else (tls_cert_file, tls_key_file)
    raise SystemExit(
        run(
            data_dir,
            conf,
            url,
            server=server,
            token_file=token_file,
            trust_file=trust_file,
            certificate=certificate,
            as_json=as_json,
        )
    )
