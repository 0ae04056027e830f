"""The metadata store over ZooKeeper: only this package uses kazoo."""
