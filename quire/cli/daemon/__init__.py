"""`quire daemon`: start and stop a server in the background, as BookKeeper's bookkeeper-daemon.sh does."""
