"""`quire config`: what a key of a configuration file means."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

UNKNOWN = 2

app = typer.Typer(no_args_is_help=True, help="Explains the keys of configuration files.")


@app.callback()
def config() -> None:
    """Explains the keys of configuration files."""


@app.command()
def explain(
    key: Annotated[str, typer.Argument(help="A key of broker.conf, standalone.conf or bk_server.conf.")],
) -> None:
    """Print type, default, bounds, unit and help of a key, and which servers obey it; of a key that is not obeyed, what
    becomes of it.

    Exit codes: 0 the key is known, 2 neither Quire nor Pulsar or BookKeeper has it.
    """
    from quire.servers import configurations

    told = configurations.explain(key)
    if told is None:
        near = configurations.near(key)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        print(f"quire config: no such key: {key}{meant}", file=sys.stderr)
        raise SystemExit(UNKNOWN)
    print(told)
