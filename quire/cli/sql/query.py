"""`quire sql`: one query, by DuckDB in this process, over topics and archives."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass

from quire.cli.messages.access import (
    ADMIN_URL,
    FAILED,
    INTERRUPTED,
    USAGE,
    ClusterAccess,
    FlagsError,
    guarded,
)
from quire.cli.messages.flags import argument, flag
from quire.spark.errors import MissingDependencyError, OptionError, SparkSourceError
from quire.tables.errors import TableError
from quire.tables.requirements import require_packages

TEXT = """Run a SQL query over topics, and over archives that were written by quire's archive pipeline.

Topics are tables: orders, "acme/shop/orders", "persistent://acme/shop/orders". An archive is "archive:/data/orders".
The columns are those of the Spark source: __key, value, __topic, __publishTime and so on; DESCRIBE orders lists them.
decode(value) makes text of bytes.

Exit codes: 0 done, 1 the cluster or a topic cannot be read, 2 the query or flags cannot be used, 130 interrupted."""


@dataclass(frozen=True, kw_only=True)
class SqlFlags(ClusterAccess):
    """Flags of `quire sql`."""

    query: str = argument("One query: SELECT, WITH, FROM, DESCRIBE or SUMMARIZE.", name="QUERY")
    json: bool = flag(False, "--json", help="Write one JSON object a line, instead of a table.")
    csv: bool = flag(False, "--csv", help="Write comma-separated values with a line of names, instead of a table.")
    start: str = flag(
        "earliest",
        "--start",
        help="Start of topics: earliest, a time such as 2026-01-31T12:00:00Z, or ms since 1970.",
    )
    end: str = flag("latest", "--end", help="End, exclusive: latest, or a time.")
    decode: str = flag("none", "--decode", help="none, or schema: value is decoded by the topic's schema.")
    read_via: str = flag("auto", "--read-via", help="auto, broker or bookies; see docs/spark-options.md.")
    parallel: int = flag(4, "--parallel", help="Ranges of a topic that are read at a time.")


def run_sql(flags: SqlFlags) -> int:
    """Run the command, and return its exit code."""
    return guarded("sql", lambda: _sql(flags))


def _sql(flags: SqlFlags) -> int:
    if flags.json and flags.csv:
        raise FlagsError("give --json or --csv, and not both")
    logging.basicConfig(level=logging.WARNING, format="quire sql: %(message)s", stream=sys.stderr)
    try:
        require_packages(duckdb=True)
        return _run(flags)
    except (MissingDependencyError, OptionError, TableError) as error:
        print(f"quire sql: {_line(error)}", file=sys.stderr)
        return USAGE
    except SparkSourceError as error:
        print(f"quire sql: {_line(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(flags: SqlFlags) -> int:
    # Imported here, because they need packages that were checked for just now.
    from quire.cli.sql.output import writer_of
    from quire.tables.request import request_options
    from quire.tables.sql import run_query
    from quire.tables.topic_rows import TopicRows

    options = _options(flags)

    def open_topic(name: str) -> TopicRows:
        given = request_options(
            name, start=_time(flags.start), end=_time(flags.end), decode=flags.decode, options=options
        )
        return TopicRows(given, parallel=flags.parallel)

    with run_query(flags.query, open_topic) as result:
        form = "json" if flags.json else "csv" if flags.csv else "table"
        write = writer_of(form, result.schema, sys.stdout)
        for batch in result.batches:
            write.rows(batch)
        write.end()
    return 0


def _time(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() else text


def _options(flags: SqlFlags) -> dict[str, str]:
    """Return the options of the source for the flags of the cluster. Raises FlagsError."""
    options = flags.client_options()
    found = {"service.url": flags.brokers(), "readVia": flags.read_via}
    if (web := flags.web()) != ADMIN_URL:
        found["admin.url"] = web
    tls = options.tls
    files = {
        "tlsCertificateFilePath": tls.certificate_file,
        "tlsKeyFilePath": tls.key_file,
        "tlsTrustCertsFilePath": tls.trust_file,
    }
    found |= {name: path for name, path in files.items() if path}
    found["tlsHostnameVerificationEnable"] = json.dumps(tls.check_host)
    found["tlsAllowInsecureConnection"] = json.dumps(not tls.verify)
    if options.credentials is not None:
        method = options.credentials.method
        name = {"token": "authToken", "basic": "authPassword"}.get(method)
        if name is None:
            raise FlagsError(f"quire sql cannot authenticate by {method}: give a token or a password")
        found[name] = options.credentials.data().decode("utf-8", "replace")
    return found


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
