"""Why a local cluster cannot be had."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster is not as it should be. The message says why, with the end of the log in question."""
