"""The tables of verbs, one module for each kind of thing.

Names and options of the verbs are pulsar-admin's (Apache Pulsar 4.2); docs/adr/0010-admin-verbs.md has the reasons.
Sources: the reference of pulsar-admin, and its classes CmdTopics, CmdTopicPolicies, CmdNamespaces, CmdTenants,
CmdClusters, CmdBrokers, CmdBookies, CmdSchemas, CmdTransactions.
"""
