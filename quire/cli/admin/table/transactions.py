"""Transactions."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.table.shared import just
from quire.cli.admin.values import MILLISECONDS, TEXT, TOPIC, number
from quire.cli.admin.verbs import Verb, VerbGroup, flag, option

_BASE: Final = "/admin/v3/transactions"
_TOPIC: Final = option("--topic", "-t", kind=TOPIC, help="The topic.", required=True)
_SUBSCRIPTION: Final = option(
    "--subscription-name", "--sub-name", "-s", kind=TEXT, help="The subscription.", required=True
)
_COORDINATOR: Final = option("--coordinator-id", "-c", kind=number(0), help="This coordinator.")
_MOST: Final = option(
    "--most-sig-bits", "-m", kind=number(0, (1 << 63) - 1), help="First half of the id.", required=True
)
_LEAST: Final = option(
    "--least-sig-bits", "-l", kind=number(0, (1 << 63) - 1), help="Second half of the id.", required=True
)
_METADATA: Final = flag("--metadata", "-m", help="With the metadata of ledgers.")
_MARKS: Final = flag("--low-water-mark", "-l", help="With the low-water marks.")

GROUP: Final = VerbGroup(
    "transactions",
    "Transactions and their coordinators.",
    (
        Verb("coordinators-list", f"GET {_BASE}/coordinators", "Print the coordinators."),
        Verb(
            "coordinator-stats",
            f"GET {_BASE}/coordinatorStats?coordinatorId={{coordinator_id}}",
            "Print the state of the coordinators.",
            (_COORDINATOR,),
        ),
        Verb(
            "coordinator-internal-stats",
            f"GET {_BASE}/coordinatorInternalStats/{{coordinator_id}}?metadata={{metadata}}",
            "Print the log of a coordinator.",
            (option("--coordinator-id", "-c", kind=number(0), help="The coordinator.", required=True), _METADATA),
        ),
        Verb(
            "slow-transactions",
            f"GET {_BASE}/slowTransactions/{{time}}?coordinatorId={{coordinator_id}}",
            "Print transactions that are open for longer.",
            (_COORDINATOR, option("--time", "-t", kind=MILLISECONDS, help="The time.", default="1s")),
        ),
        Verb(
            "transaction-metadata",
            f"GET {_BASE}/transactionMetadata/{{most_sig_bits}}/{{least_sig_bits}}",
            "Print a transaction.",
            (_MOST, _LEAST),
        ),
        Verb(
            "abort-transaction",
            f"POST {_BASE}/abortTransaction/{{most_sig_bits}}/{{least_sig_bits}}",
            "Abort a transaction.",
            (_MOST, _LEAST),
            destroys="what the transaction {most_sig_bits}:{least_sig_bits} wrote",
        ),
        Verb(
            "scale-transactionCoordinators",
            f"POST {_BASE}/transactionCoordinator/replicas",
            "Add coordinators.",
            (option("--replicas", "-r", kind=number(1), help="Their number afterwards.", required=True),),
            body=just("replicas"),
        ),
        Verb(
            "transaction-buffer-stats",
            f"GET {_BASE}/transactionBufferStats/{{topic.path}}?lowWaterMarks={{low_water_mark}}",
            "Print the transactions of a topic.",
            (_TOPIC, _MARKS),
        ),
        Verb(
            "transaction-buffer-internal-stats",
            f"GET {_BASE}/transactionBufferInternalStats/{{topic.path}}?metadata={{metadata}}",
            "Print the snapshots of a topic.",
            (_TOPIC, _METADATA),
        ),
        Verb(
            "transaction-in-buffer-stats",
            f"GET {_BASE}/transactionInBufferStats/{{topic.path}}/{{most_sig_bits}}/{{least_sig_bits}}",
            "Print a transaction on a topic.",
            (_TOPIC, _MOST, _LEAST),
        ),
        Verb(
            "pending-ack-stats",
            f"GET {_BASE}/pendingAckStats/{{topic.path}}/{{subscription_name}}?lowWaterMarks={{low_water_mark}}",
            "Print the transactions of a subscription.",
            (_TOPIC, _SUBSCRIPTION, _MARKS),
        ),
        Verb(
            "pending-ack-internal-stats",
            f"GET {_BASE}/pendingAckInternalStats/{{topic.path}}/{{subscription_name}}?metadata={{metadata}}",
            "Print the log of a subscription's transactions.",
            (_TOPIC, _SUBSCRIPTION, _METADATA),
        ),
        Verb(
            "transaction-in-pending-ack-stats",
            f"GET {_BASE}/transactionInPendingAckStats/{{topic.path}}/{{subscription_name}}"
            "/{most_sig_bits}/{least_sig_bits}",
            "Print a transaction on a subscription.",
            (_TOPIC, _SUBSCRIPTION, _MOST, _LEAST),
        ),
        Verb(
            "position-stats-in-pending-ack",
            f"GET {_BASE}/positionStatsInPendingAck/{{topic.path}}/{{subscription_name}}/{{ledger_id}}/{{entry_id}}"
            "?batchIndex={batch_index}",
            "Print whether a message is acknowledged in a transaction.",
            (
                _TOPIC,
                _SUBSCRIPTION,
                option("--ledger-id", "-l", kind=number(0, (1 << 63) - 1), help="The ledger.", required=True),
                option("--entry-id", "-e", kind=number(0, (1 << 63) - 1), help="The entry.", required=True),
                option("--batch-index", "-b", kind=number(0), help="The message of the batch."),
            ),
        ),
    ),
)
