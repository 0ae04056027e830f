"""A cluster on this machine: ZooKeeper, bookies, brokers, auto recovery, each a process with its own configuration and
log.

`scripts/cluster`, the chaos run, the demo, the measurements and tests use it.
"""
