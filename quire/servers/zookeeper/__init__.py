"""`quire zookeeper` as a process, and the keys that name a ZooKeeper."""
