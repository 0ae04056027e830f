"""Which broker serves which topics: bundles of a namespace, leases on them, lookups, and who is better placed to have them."""
