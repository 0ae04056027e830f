"""Table of contents of `quire --help`: headings and commands in the order in which they are needed, a line for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CONTENTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Servers": {
            "standalone": "Run a whole server in one process.",
            "broker": "Run one broker of a cluster.",
            "bookie": "Run one bookie of a cluster.",
            "autorecovery": "Restore the missing copies of ledgers.",
            "daemon": "Start and stop a bookie in the background.",
            "zookeeper": "Run an original ZooKeeper server.",
            "localbookie": "Run ZooKeeper and bookies on this machine.",
        },
        "Messages": {
            "produce": "Send messages to a topic.",
            "consume": "Receive messages and acknowledge them.",
            "read": "Read a topic from a position on.",
            "peek": "Show the next messages of a subscription.",
            "sql": "Query topics and archives with SQL.",
            "pipeline": "Archive, copy and count with Spark.",
        },
        "Administration": {
            "initialize-cluster-metadata": "Create the metadata of a new cluster.",
            "admin": "Administrate a cluster, as pulsar-admin does.",
            "top": "Watch topics, subscriptions and bookies.",
            "tokens": "Make and check keys and tokens.",
        },
        "Maintenance": {
            "doctor": "Find problems of a machine or a server.",
            "operations": "Verify, recover, replace, restart bookies.",
            "shell": "Inspect bookies, as BookKeeper's shell does.",
            "upgrade": "Upgrade a bookie from a layout before 4.0.",
            "salvage": "Print messages from files of a bookie.",
        },
        "Measurements": {
            "perf": "Measure a cluster, as pulsar-perf does.",
            "bench": "Run a workload of OpenMessaging's benchmark.",
        },
        "About": {
            "config": "Explain the keys of configuration files.",
            "version": "Print the version.",
        },
    }
)
