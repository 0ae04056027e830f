"""Metadata of a new cluster in ZooKeeper, before its first bookie starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.local_cluster.errors import ClusterError
from tools.local_cluster.plan import CLUSTER_NAME, HOST, Addresses
from tools.local_cluster.security import Security


def initialize(folder: Path, addresses: Addresses, security: Security | None) -> None:
    """Create the metadata. Raises ClusterError."""
    command = [sys.executable, "-m", "quire.cli.main", "initialize-cluster-metadata", "--cluster", CLUSTER_NAME]
    command += ["--metadata-store", addresses.metadata_store]
    web, service = addresses.web_urls[:1], addresses.service_url
    if security is None:
        command += ["--web-service-url", (web or [f"http://{HOST}:8080"])[0]]
        command += ["--broker-service-url", service or f"pulsar://{HOST}:6650"]
    else:
        command += ["--metadata-store-config-path", str(security.zookeeper_conf), "--web-service-url", ""]
        command += ["--web-service-url-tls", (web or [f"https://{HOST}:8443"])[0]]
        command += ["--broker-service-url-tls", service or f"pulsar+ssl://{HOST}:6651"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"cannot create the cluster's metadata:\n{done.stdout}{done.stderr}")
