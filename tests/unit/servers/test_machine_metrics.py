"""Metrics of the process and of certificates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from quire.servers.machine_metrics import memory_limit, register_machine
from quire.service.metrics import Metrics


@dataclass
class Side:
    """A side of TLS with a certificate."""

    expires_at_s: float


def values(certificates: dict[str, Side | None]) -> dict[str, float]:
    metrics = Metrics()
    register_machine(metrics, certificates)
    lines = [line for line in metrics.exposition().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_memory_processor_and_files_of_this_process_are_shown() -> None:
    found = values({})
    assert 10 << 20 < found["process_resident_memory_bytes"] <= found["quire_memory_limit_bytes"]
    assert found["process_cpu_seconds_total"] > 0
    with open("/dev/null"):
        assert values({})["process_open_fds"] == found["process_open_fds"] + 1


def test_only_ports_with_a_certificate_have_its_end() -> None:
    found = values({"brokerServicePortTls": Side(1700000000.0), "webServicePortTls": None, "other": Side(0.0)})
    ends = {name: value for name, value in found.items() if "expiry" in name}
    assert ends == {'quire_certificate_expiry_timestamp_seconds{server="brokerServicePortTls"}': 1700000000.0}


@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        ("0::/a/b", {"a/memory.max": "5000", "a/b/memory.max": "max"}, 5000),
        ("0::/a/b", {"a/memory.max": "5000", "a/b/memory.max": "400"}, 400),
        ("0::/", {"memory.max": "max"}, 1024000),
        ("7:memory:/a\n0::/", {"memory/a/memory.limit_in_bytes": "7000"}, 7000),
        ("7:memory:/a", {"memory/a/memory.limit_in_bytes": "9223372036854771712"}, 1024000),
        ("3:cpu:/a", {"memory/a/memory.limit_in_bytes": "7000"}, 1024000),
    ],
)
def test_the_limit_of_memory_is_the_least_of_its_groups_and_the_machine(
    tmp_path: Path, cgroup: str, files: dict[str, str], limit: int
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(cgroup + "\n")
    (proc / "meminfo").write_text("MemTotal:       1000 kB\nMemFree: 1 kB\n")
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text + "\n")
    assert memory_limit(groups, proc) == limit
    assert memory_limit(groups, tmp_path / "none") == 0
