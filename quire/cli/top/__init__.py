"""`quire top`: topics, subscriptions that stand still, bookies and repairs of a cluster, live on a terminal."""
