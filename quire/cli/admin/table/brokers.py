"""Brokers, their statistics, and bookies."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.table.shared import A_CLUSTER
from quire.cli.admin.values import TEXT, number, one_of
from quire.cli.admin.verbs import Given, Plan, Verb, VerbGroup, argument, flag, made, option

_KEY: Final = option("--config", "-c", kind=TEXT, help="The key.", required=True)
_BOOKIE: Final = option("--bookie", "-b", kind=TEXT, help="The bookie, as host:port.", required=True)


def _list(given: Given) -> Plan:
    return (yield made("GET brokers" if given["cluster"] is None else "GET brokers/{cluster}", given))


BROKERS: Final = VerbGroup(
    "brokers",
    "Brokers: who serves, their configuration, their health.",
    (
        Verb(
            "list",
            "GET brokers/{cluster}",
            "Print the running brokers.",
            (argument("cluster", TEXT, "A cluster.", required=False),),
            plan=_list,
        ),
        Verb("leader-broker", "GET brokers/leaderBroker", "Print the broker that places bundles."),
        Verb(
            "namespaces",
            "GET brokers/{cluster}/{url}/ownedNamespaces",
            "Print the bundles that a broker serves.",
            (A_CLUSTER, option("--url", "-u", kind=TEXT, help="The broker, as host:port.", required=True)),
        ),
        Verb("list-dynamic-config", "GET brokers/configuration", "Print the keys that can be changed at run time."),
        Verb("get-all-dynamic-config", "GET brokers/configuration/values", "Print the keys that were changed."),
        Verb("get-runtime-config", "GET brokers/configuration/runtime", "Print the configuration of the broker."),
        Verb("get-internal-config", "GET brokers/internal-configuration", "Print the addresses of the metadata."),
        Verb(
            "update-dynamic-config",
            "POST brokers/configuration/{config}/{value}",
            "Change a key of all brokers, while they run.",
            (_KEY, option("--value", "-v", kind=TEXT, help="The value.", required=True)),
        ),
        Verb(
            "delete-dynamic-config",
            "DELETE brokers/configuration/{config}",
            "Give a key its value in the file back.",
            (_KEY,),
        ),
        Verb(
            "healthcheck",
            "GET brokers/health?topicVersion={topic_version}&brokerId={broker_id}",
            "Write a message and read it back.",
            (
                option("--topic-version", "-tv", kind=one_of("V1", "V2"), help="Name of the topic to use."),
                option("--broker-id", kind=TEXT, help="The broker, as host:port; without it, the one at the URL."),
            ),
        ),
        Verb("backlog-quota-check", "GET brokers/backlog-quota-check", "Check the quotas of all topics now."),
        Verb("version", "GET brokers/version", "Print the version of the broker."),
        Verb(
            "shutdown",
            "POST brokers/shutdown?maxConcurrentUnloadPerSec={max_concurrent_unload_per_sec}"
            "&forcedTerminateTopic={forced_terminate_topic}",
            "Stop the broker. (Pulsar's brokers; stop Quire's with SIGTERM.)",
            (
                option(
                    "--max-concurrent-unload-per-sec", "-m", kind=number(0), help="Bundles per second; 0: no limit."
                ),
                flag("--forced-terminate-topic", "-f", help="Do not wait for topics."),
            ),
            destroys="the connections of the broker's clients",
        ),
    ),
)

STATS: Final = VerbGroup(
    "broker-stats",
    "Statistics of one broker.",
    (
        Verb("load-report", "GET broker-stats/load-report", "Print the load of the broker."),
        Verb("topics", "GET broker-stats/topics", "Print the statistics of all topics of the broker."),
        Verb("monitoring-metrics", "GET broker-stats/metrics", "Print metrics. (Pulsar's brokers.)"),
        Verb("mbeans", "GET broker-stats/mbeans", "Print beans of the JVM. (Pulsar's brokers.)"),
        Verb(
            "allocator-stats",
            "GET broker-stats/allocator-stats/{allocator}",
            "Print the memory of an allocator. (Pulsar's brokers.)",
            (argument("allocator", TEXT, "An allocator."),),
        ),
    ),
)

BOOKIES: Final = VerbGroup(
    "bookies",
    "Bookies and their racks.",
    (
        Verb("list-bookies", "GET bookies/all", "Print the bookies.", renderer="bookies"),
        Verb("racks-placement", "GET bookies/racks-info", "Print the racks of all bookies."),
        Verb("get-bookie-rack", "GET bookies/racks-info/{bookie}", "Print the rack of a bookie.", (_BOOKIE,)),
        Verb(
            "set-bookie-rack",
            "POST bookies/racks-info/{bookie}?group={group}",
            "Set the rack of a bookie.",
            (
                _BOOKIE,
                option("--rack", "-r", kind=TEXT, help="The rack, such as /region/rack.", required=True),
                option("--group", "-g", kind=TEXT, help="The group.", default="default"),
                option("--hostname", "-hn", kind=TEXT, help="The host."),
            ),
            body=lambda given: {"rack": given["rack"], "hostname": given["hostname"]},
        ),
        Verb(
            "delete-bookie-rack",
            "DELETE bookies/racks-info/{bookie}",
            "Forget the rack of a bookie.",
            (_BOOKIE,),
            destroys="the rack of the bookie {bookie}",
        ),
    ),
)
