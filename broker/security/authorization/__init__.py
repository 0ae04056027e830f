"""Authorization: which role may do what. Pure tables and decisions, and the nodes of the metadata that they use."""
