"""The auditor: one elected process of the cluster. It finds lost bookies, and missing or damaged copies."""
