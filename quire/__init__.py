"""Quire: a topic broker on a bookie tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from quire.distribution import DISTRIBUTION, install_command, installed_version

if TYPE_CHECKING:
    import pyarrow as pa

    from quire.tables.bounds import Bound

__all__ = ["DISTRIBUTION", "install_command", "installed_version", "table"]


def table(
    topics: str | Sequence[str],
    *,
    start: Bound = None,
    end: Bound = None,
    columns: Sequence[str] | None = None,
    service_url: str | None = None,
    admin_url: str | None = None,
    decode: str = "none",
    parallel: int = 4,
    buffer_bytes: int = 128 << 20,
    options: Mapping[str, object] | None = None,
) -> pa.RecordBatchReader:
    """Return the messages of topics as Arrow record batches, with the columns of `spark.read.format("quire")`.

    Closed ledgers are read from their bookies. The open one is read from its broker, and so is what bookies cannot
    answer. The end is fixed by this call. Reading begins with the first batch, in several threads. Batches come in the
    order of the log, one partition after the other.

    Args:
        topics: name of a topic (`orders`, `acme/shop/orders`, `persistent://acme/shop/orders`), or several names.
        start: first message: `earliest` (default), a `datetime` with a time zone or ISO 8601 text (the first entry
            published then or later), an `int` of ms since 1970, `ledger:entry` of a topic without partitions, or a
            mapping of partitions to `ledger:entry`.
        end: end, exclusive, in the same forms; `latest` by default.
        columns: names of columns; all by default.
        service_url: address of the brokers, `pulsar://127.0.0.1:6650` by default.
        admin_url: address of their REST interface; by default port 8080 of the first host of `service_url`.
        decode: `none`, or `schema`: `value` is decoded by the topic's schema.
        parallel: number of ranges that are read at a time, 1 to 64.
        buffer_bytes: approximate maximum of bytes that are read ahead.
        options: further options, as in docs/spark-options.md: credentials, TLS, time limits, `readVia`.

    Returns:
        The reader. `read_all()` makes a table of it; pyarrow, Polars, pandas and DuckDB take it as it is.

    Raises:
        quire.spark.errors.MissingDependencyError: the extra `sql` is not installed.
        quire.spark.errors.OptionError: an argument is invalid.
        quire.spark.errors.SparkSourceError: the topic cannot be read; the batches may raise it too.

    Example:
        rows = quire.table("orders", start="2026-01-31T00:00:00Z", columns=["__key", "value"]).read_all()
    """
    from quire.tables.requirements import require_packages

    require_packages()
    from quire.tables.request import request_options
    from quire.tables.topic_rows import TopicRows

    given = request_options(
        topics,
        start=start,
        end=end,
        columns=columns,
        service_url=service_url,
        admin_url=admin_url,
        decode=decode,
        options=options or {},
    )
    return TopicRows(given, parallel=parallel, buffer_bytes=buffer_bytes).reader()
