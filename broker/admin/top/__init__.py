"""The first topics of a cluster by rate, lag or age, for `quire top`."""
