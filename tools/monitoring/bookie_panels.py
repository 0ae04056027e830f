"""The dashboard of bookies and auto recovery."""

from __future__ import annotations

from typing import Final

from tools.monitoring.broker_panels import mean, rate
from tools.monitoring.panels import Dashboard, Panel, Query, Row, Variable

_BOOKIES: Final = '{job="quire-bookie", instance=~"$instance"}'
_AUDITORS: Final = '{job=~"quire-bookie|quire-autorecovery"}'
_GOOD: Final = '{job="quire-bookie", instance=~"$instance", success="true"}'
_BAD: Final = '{job="quire-bookie", instance=~"$instance", success="false"}'


def _by(name: str, labels: str = _BOOKIES) -> str:
    return f"sum by (instance) ({rate(name, labels)})"


BOOKIE: Final = Dashboard(
    "quire-bookie",
    "Quire / Bookies and auto recovery",
    "Bookies: requests, journal, storage, disk. Auto recovery: the auditor, ledgers that lack copies, repairs.",
    (Variable("instance", "Bookie", "label_values(bookie_SERVER_STATUS, instance)"),),
    (
        Row(
            "Overview",
            (
                Panel(
                    "Writable bookies",
                    "short",
                    "Bookies that take new entries. Fewer than the ensemble size: no ledger can be created.",
                    (Query('sum(bookie_SERVER_STATUS{job="quire-bookie"} == bool 1)', "writable"),),
                    kind="stat",
                    width=6,
                    warning_below=1,
                ),
                Panel(
                    "Bookies that do not answer",
                    "short",
                    "Bookies that Prometheus cannot scrape.",
                    (Query('sum(up{job="quire-bookie"} == bool 0)', "down"),),
                    kind="stat",
                    width=6,
                    warning_above=1,
                ),
                Panel(
                    "Ledgers that lack copies",
                    "short",
                    "Ledgers marked after the last audit. Normal: 0.",
                    (Query(f"max(auditor_NUM_UNDER_REPLICATED_LEDGERS_GUAGE{_AUDITORS})", "ledgers"),),
                    kind="stat",
                    width=6,
                    warning_above=1,
                ),
                Panel(
                    "Auditors",
                    "short",
                    "Processes that are the auditor. Normal: 1.",
                    (Query(f"sum(auditor_IS_AUDITOR{_AUDITORS})", "auditors"),),
                    kind="stat",
                    width=6,
                    warning_below=1,
                ),
            ),
        ),
        Row(
            "Requests",
            (
                Panel(
                    "Entries added",
                    "ops",
                    "Entries per second that clients asked to add, and those that were refused.",
                    (
                        Query(_by("bookkeeper_server_ADD_ENTRY_REQUEST_count", _GOOD), "added {{instance}}"),
                        Query(_by("bookkeeper_server_ADD_ENTRY_REQUEST_count", _BAD), "refused {{instance}}"),
                    ),
                ),
                Panel(
                    "Reads",
                    "ops",
                    "Read requests per second; a batch counts once.",
                    (Query(_by("bookkeeper_server_READ_ENTRY_REQUEST_count", _GOOD), "{{instance}}"),),
                ),
                Panel(
                    "Bytes",
                    "Bps",
                    "Bytes of entries added, and bytes read from entry logs, per second.",
                    (
                        Query(_by("bookie_WRITE_BYTES"), "written {{instance}}"),
                        Query(_by("bookie_READ_BYTES"), "read {{instance}}"),
                    ),
                ),
                Panel(
                    "Fences",
                    "ops",
                    "Fences per second: ledgers that another process closes. Many of them: brokers take topics over.",
                    (Query(_by("bookkeeper_server_READ_ENTRY_FENCE_REQUEST_count", _GOOD), "{{instance}}"),),
                ),
                Panel(
                    "Reads from memory and disk",
                    "ops",
                    "Read requests that caches answered, and reads from entry logs, per second.",
                    (
                        Query(_by("quire_bookie_reads_from_memory"), "memory {{instance}}"),
                        Query(_by("quire_bookie_reads_from_disk"), "disk {{instance}}"),
                    ),
                ),
                Panel(
                    "Connections",
                    "short",
                    "Connections of brokers and other clients that are open now.",
                    (Query(f"quire_bookie_connections{_BOOKIES}", "{{instance}}"),),
                ),
            ),
        ),
        Row(
            "Journal and storage",
            (
                Panel(
                    "Time of an add",
                    "ms",
                    "99 of 100 entries were in the journal after this time since their arrival.",
                    (
                        Query(
                            'bookkeeper_server_ADD_ENTRY_REQUEST{job="quire-bookie", instance=~"$instance", '
                            'success="true", quantile="0.99"}',
                            "p99 {{instance}}",
                        ),
                    ),
                ),
                Panel(
                    "Time of a read",
                    "ms",
                    "99 of 100 read requests were answered after this time.",
                    (
                        Query(
                            'bookkeeper_server_READ_ENTRY_REQUEST{job="quire-bookie", instance=~"$instance", '
                            'success="true", quantile="0.99"}',
                            "p99 {{instance}}",
                        ),
                    ),
                ),
                Panel(
                    "Longest pass of the event loop",
                    "ms",
                    "Longest time since the scrape before for which one pass of the event loop held everything else.",
                    (Query(f"quire_event_loop_longest_pass_ms{_BOOKIES}", "{{instance}}"),),
                    warning_above=100,
                ),
                Panel(
                    "Time of a sync",
                    "ms",
                    "Mean time of a sync of the journal. Every message waits for at least one.",
                    (Query(mean("bookie_journal_JOURNAL_SYNC", _GOOD), "{{instance}}"),),
                    warning_above=100,
                ),
                Panel(
                    "Syncs",
                    "ops",
                    "Groups written to the journal per second.",
                    (Query(_by("bookie_journal_JOURNAL_SYNC_count", _GOOD), "{{instance}}"),),
                ),
                Panel(
                    "Waiting for the journal",
                    "bytes",
                    "Bytes of entries that wait for the journal, and their bound.",
                    (
                        Query(
                            f"sum by (instance) (bookie_journal_JOURNAL_MEMORY_USED{_BOOKIES})", "waiting {{instance}}"
                        ),
                        Query(f"max(sum by (instance) (bookie_journal_JOURNAL_MEMORY_MAX{_BOOKIES}))", "bound"),
                    ),
                ),
                Panel(
                    "Write cache",
                    "percentunit",
                    "Fill level of the write cache. At 100 % adds wait for a flush.",
                    (
                        Query(
                            f"max by (instance) (bookie_write_cache_size{_BOOKIES}) "
                            f"/ max by (instance) (bookie_write_cache_max_size{_BOOKIES})",
                            "{{instance}}",
                        ),
                    ),
                    warning_above=0.9,
                ),
                Panel(
                    "Flushed",
                    "Bps",
                    "Bytes per second flushed to entry logs.",
                    (Query(_by("bookie_flush_size_sum", _GOOD), "{{instance}}"),),
                ),
                Panel(
                    "Ledgers",
                    "short",
                    "Ledgers that a bookie has entries of.",
                    (Query(f"sum by (instance) (bookie_ledgers_count{_BOOKIES})", "{{instance}}"),),
                ),
                Panel(
                    "Failures",
                    "ops",
                    "Groups that could not be written, and background jobs that failed, per second. Normal: 0.",
                    (
                        Query(_by("quire_bookie_journal_write_failures"), "journal {{instance}}"),
                        Query(
                            f"{_by('quire_bookie_job_failures')} or 0 * sum by (instance) (up{_BOOKIES})",
                            "jobs {{instance}}",
                        ),
                    ),
                ),
                Panel(
                    "Disk free",
                    "percentunit",
                    "Free share of the disks. Below 15 %: QuireDiskFilling.",
                    (
                        Query(
                            f"quire_disk_free_bytes{_BOOKIES} / quire_disk_size_bytes{_BOOKIES}",
                            "{{instance}} {{folder}}",
                        ),
                    ),
                    warning_below=0.15,
                ),
                Panel(
                    "State",
                    "none",
                    "1: writable, 0: read-only, -1: not registered.",
                    (Query(f"bookie_SERVER_STATUS{_BOOKIES}", "{{instance}}"),),
                ),
            ),
        ),
        Row(
            "Auto recovery",
            (
                Panel(
                    "Repaired",
                    "ops",
                    "Ledgers per second that have all their copies again.",
                    (
                        Query(
                            _by("replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", _AUDITORS), "{{instance}}"
                        ),
                    ),
                ),
                Panel(
                    "Bytes copied",
                    "Bps",
                    "Bytes of copies written per second.",
                    (Query(_by("replication_worker_NUM_BYTES_WRITTEN_sum", _AUDITORS), "{{instance}}"),),
                ),
                Panel(
                    "Not repairable",
                    "short",
                    "Fragments not repaired because an entry has no good copy, since the process began. Normal: 0.",
                    (
                        Query(
                            f"replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION{_AUDITORS}", "{{instance}}"
                        ),
                    ),
                    warning_above=1,
                ),
                Panel(
                    "Ledgers without enough copies",
                    "short",
                    "Result of the last check of replicas: ledgers with an entry that has no copy, or fewer than the "
                    "ack quorum.",
                    (
                        Query(f"max(auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY{_AUDITORS})", "no copy"),
                        Query(
                            f"max(auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY{_AUDITORS})",
                            "fewer than the ack quorum",
                        ),
                    ),
                ),
                Panel(
                    "Ledgers checked",
                    "ops",
                    "Ledgers per second that the auditor checked.",
                    (Query(f"sum({rate('auditor_NUM_LEDGERS_CHECKED', _AUDITORS)})", "ledgers"),),
                ),
                Panel(
                    "Placed wrongly",
                    "short",
                    "Ledgers whose copies are not placed as the policy demands.",
                    (Query(f"max(auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY{_AUDITORS})", "ledgers"),),
                ),
            ),
        ),
    ),
)
