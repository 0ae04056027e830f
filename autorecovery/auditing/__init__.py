"""The auditor: one of the cluster, elected; finds bookies that were lost and copies that are missing or damaged."""
