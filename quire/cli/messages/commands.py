"""The commands of this folder. Their modules are imported when a command runs or shows its help."""

from __future__ import annotations

import typer

from quire.cli.messages.lazily import add_lazily

WHERE = "quire.cli.messages"


def add_to(app: typer.Typer) -> None:
    """Add produce, consume, read and peek to `quire`."""
    add_lazily(app, "produce", f"{WHERE}.produce:ProduceFlags:run_produce:TEXT", "Send messages to a topic.")
    add_lazily(app, "consume", f"{WHERE}.consume:ConsumeFlags:run_consume:CONSUME_TEXT", "Receive and acknowledge.")
    add_lazily(app, "read", f"{WHERE}.consume:ReadFlags:run_read:READ_TEXT", "Read a topic from a position on.")
    add_lazily(app, "peek", f"{WHERE}.peek:PeekFlags:run_peek:TEXT", "Look at the next messages of a subscription.")
