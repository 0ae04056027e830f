"""`scripts/bench tls`: a raw flood of 1 KB and of 100 B over TLS beside the same without, on Quire and Apache Pulsar.

Both ports belong to one server, and the rounds alternate between them, so that both have the same disk, cache and
neighbours. The generator's own TLS costs about as much as the server's. Where both have one core, the CPU per message
of the server says more than the rate.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import trustme
from rich.console import Console
from rich.table import Table

from bench.servers import Server, free_port, pulsar, pulsar_jars, quire
from bench.vs import run_load

console = Console()
RATIO_MIN = 0.6
"""Rate over TLS, relative to the rate without, that is expected of Quire."""
WORKLOADS = ("raw_1k", "raw_100")


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a running server."""

    name: str
    port: int
    pids: list[int]


def settings(folder: Path, port: int, web: int) -> dict[str, object]:
    """Write a certificate and its key; return the keys of a configuration for ports with TLS."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.RSA)
    certificate, key, trust = folder / "server.pem", folder / "server.key", folder / "ca.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    # (Pulsar reads keys of PKCS#8 only, which trustme does not write.)
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    secret = load_pem_private_key(made.private_key_pem.bytes(), None)
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    authority.cert_pem.write_to_path(trust)
    return {
        "brokerServicePortTls": port,
        "webServicePortTls": web,
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "tlsTrustCertsFilePath": trust,
    }


def ports_of(server: Server, tls_port: int) -> tuple[Port, Port]:
    return Port(server.name, server.port, server.pids), Port(f"{server.name} tls", tls_port, server.pids)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench tls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="measured seconds of each flood")
    parser.add_argument("--warm", type=float, default=20, help="seconds of load before measuring")
    parser.add_argument("--no-pulsar", action="store_true")
    given = parser.parse_args()
    lib = None if given.no_pulsar else pulsar_jars()
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-tls-"))
    samples: dict[tuple[str, str], list[dict[str, float]]] = {}
    try:
        with contextlib.ExitStack() as stack:
            pairs = []
            port = free_port()
            own = settings(folder / "quire", port, free_port())
            pairs.append(ports_of(stack.enter_context(quire(folder / "quire", own)), port))
            if lib is not None:
                port = free_port()
                theirs = settings(folder / "pulsar", port, free_port())
                pairs.append(ports_of(stack.enter_context(pulsar(folder / "pulsar", lib, theirs)), port))
            for plain, _ in pairs if given.warm else ():
                run_load(plain, "warm", given.warm)
            for number in range(given.rounds):
                for plain, tls in pairs:
                    ways = ((plain, ""), (tls, "_tls"))
                    for workload in WORKLOADS:
                        for each, suffix in ways if number % 2 == 0 else reversed(ways):
                            found = run_load(each, f"{workload}{suffix}", given.seconds)
                            samples.setdefault((each.name, workload), []).append(found)
                            shown = "  ".join(f"{key} {value:,.3g}" for key, value in found.items())
                            console.print(f"round {number + 1}/{given.rounds}  {workload:<8} {each.name:<10} {shown}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _report(samples)


def _report(samples: dict[tuple[str, str], list[dict[str, float]]]) -> None:
    table = Table(title="TLS beside no TLS (medians)")
    for column in ("server", "workload", "unit", "plain", "TLS", "ratio", "expected", ""):
        table.add_column(column)
    for server in ("quire", "pulsar"):
        for workload in WORKLOADS:
            for key, unit, scale in (("rate", "k/s", 1e-3), ("cpu_us", "us", 1.0)):
                if (server, workload) not in samples:
                    continue
                plain = statistics.median(each[key] for each in samples[server, workload])
                tls = statistics.median(each[key] for each in samples[f"{server} tls", workload])
                expected = verdict = ""
                if (server, workload, key) == ("quire", "raw_1k", "rate"):
                    expected, verdict = f">= {RATIO_MIN}", "ok" if tls / plain >= RATIO_MIN else "SHORT"
                figures = f"{plain * scale:,.2f}", f"{tls * scale:,.2f}", f"{tls / plain:.2f}"
                table.add_row(server, workload, unit, *figures, expected, verdict)
    console.print(table)


if __name__ == "__main__":
    main()
