"""The tables of verbs, one module for each kind of thing.

Names and options of the verbs are pulsar-admin's; docs/adr/0010-admin-verbs.md has the reasons.
Source: the reference pages of pulsar-admin, 2.6 to 4.0.
"""
