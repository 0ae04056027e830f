"""Why a local cluster cannot be had."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster is not as it should be. The message says why, with the end of the log in question."""


class StateError(ClusterError):
    """The cluster cannot be found, or is not what was asked for. The message says what to do."""


class NoPortsError(ClusterError):
    """There are not enough free ports. Final."""
