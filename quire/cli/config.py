"""`quire config`: explanations of the keys of configuration files."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

UNKNOWN = 2

app = typer.Typer(no_args_is_help=True, help="Explain the keys of configuration files.")


@app.callback()
def config() -> None:
    """Explain the keys of configuration files."""


@app.command()
def explain(
    key: Annotated[str, typer.Argument(help="A key of broker.conf, standalone.conf or bk_server.conf.")],
) -> None:
    """Print the type, default, bounds, unit and help of a key, and the servers that obey it.

    If no server obeys the key, print its effect. Exit codes: 0 the key is known, 2 none of Quire, Pulsar and BookKeeper
    has it.
    """
    from quire.servers import configurations

    told = configurations.explain(key)
    if told is None:
        near = configurations.near(key)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        print(f"quire config: no such key: {key}{meant}", file=sys.stderr)
        raise SystemExit(UNKNOWN)
    print(told)
