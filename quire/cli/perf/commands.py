"""`quire perf ...` and `quire bench`. Their modules are imported when a command runs or shows its help."""

from __future__ import annotations

import typer

from quire.cli.messages.lazily import add_lazily

WHERE = "quire.cli.perf"


def add_to(app: typer.Typer) -> None:
    """Add perf and bench to `quire`."""
    perf = typer.Typer(no_args_is_help=True, help="Measure a cluster, with the flags and lines of pulsar-perf.")
    add_lazily(perf, "produce", f"{WHERE}.produce:ProducerFlags:run_perf_produce:TEXT", "Measure producers.")
    add_lazily(perf, "consume", f"{WHERE}.consume:ConsumerFlags:run_perf_consume:CONSUME_TEXT", "Measure consumers.")
    add_lazily(perf, "read", f"{WHERE}.consume:ReaderFlags:run_perf_read:READ_TEXT", "Measure readers.")
    add_lazily(
        perf,
        "transaction",
        f"{WHERE}.transaction:TransactionFlags:run_perf_transaction:TEXT",
        "Measure transactions.",
    )
    app.add_typer(perf, name="perf")
    add_lazily(
        app,
        "bench",
        f"{WHERE}.bench:BenchFlags:run_bench:TEXT",
        "Run a workload of OpenMessaging's benchmark.",
    )
