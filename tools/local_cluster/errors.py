"""Errors of local clusters."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster does not work. The message has the reason, with the end of the log in question."""


class StateError(ClusterError):
    """The cluster cannot be found, or has not what was requested. The message has the remedy."""


class NoPortsError(ClusterError):
    """There are not enough free ports. Permanent."""
