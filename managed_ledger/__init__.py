"""Managed ledger: one endless log made of ledgers.

from managed_ledger.factory import open_factory                          one per broker
from managed_ledger.managed_ledger import AppendSink, ManagedLedger
from managed_ledger.config import ManagedLedgerConfig
"""
