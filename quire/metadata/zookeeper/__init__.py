"""The metadata store over ZooKeeper: everything that knows kazoo."""
