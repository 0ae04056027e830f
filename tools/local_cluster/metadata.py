"""Metadata of a new cluster in ZooKeeper, before its first bookie starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.local_cluster.errors import ClusterError
from tools.local_cluster.plan import CLUSTER_NAME, HOST, Addresses


def initialize(folder: Path, addresses: Addresses) -> None:
    """Create the metadata. Raises ClusterError."""
    command = [sys.executable, "-m", "quire.cli.main", "initialize-cluster-metadata", "--cluster", CLUSTER_NAME]
    command += ["--metadata-store", addresses.metadata_store]
    command += ["--web-service-url", (addresses.web_urls or [f"http://{HOST}:8080"])[0]]
    command += ["--broker-service-url", addresses.service_url or f"pulsar://{HOST}:6650"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"cannot create the cluster's metadata:\n{done.stdout}{done.stderr}")
