"""`scripts/bench tls`: what security costs a raw flood. Two kinds of rows, all by default:

    tls     1 KB and 100 B over TLS beside the same without, on Quire and on Apache Pulsar
    auth    1 KB on a server with authentication and authorization beside one without, on Quire

For `tls` both ports belong to one server; for `auth` there are two servers. The rounds alternate between the two, so
that both have the same disk, cache and neighbours. The generator's own TLS costs about as much as the server's. Where
both have one core, the CPU per message of the server says more than the rate. Ratios are medians over the rounds, each
of the two runs of one round.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import trustme
import typer
from rich.console import Console
from rich.table import Table

from bench.servers import Server, free_port, listens, pulsar, pulsar_jars, quire
from bench.vs import run_load
from bench.waiting import poll_until
from broker.security.authentication.making import token_of_secret
from quire.service.programs.command_line import run_command

console = Console()
RATE_RATIO_MIN = 0.6
"""Rate over TLS, relative to the rate without, that is expected of Quire."""
AUTH_RATIO_MAX = 1.03
"""CPU per message with authentication and authorization, relative to that without, that is expected of Quire."""
WORKLOADS = ("raw_1k", "raw_100")
ROWS = ("tls", "auth")
ADMIN, ROLE = "admin", "client"
SECRET_BYTES = 32
WEB_S = 30.0


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a running server."""

    name: str
    port: int
    pids: list[int]


@dataclass(frozen=True, slots=True)
class Way:
    """A port, and how it is loaded."""

    port: Port
    suffix: str = ""
    """End of the name of the workload."""
    token_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two ways that are compared."""

    server: str
    what: str
    plain: Way
    secure: Way
    workloads: Sequence[str]
    rate_min: float | None = None
    """Expected ratio of the rates of raw_1k."""
    cpu_max: float | None = None
    """Expected ratio of the CPU per message."""


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


def access(folder: Path) -> tuple[dict[str, object], Path]:
    """Write a secret key and the tokens of two roles; return the keys of a configuration that requires them, and the
    file with the token of the client."""
    folder.mkdir(parents=True, exist_ok=True)
    secret = b"x" * SECRET_BYTES
    (folder / "secret.key").write_bytes(secret)
    for role in (ADMIN, ROLE):
        (folder / f"{role}.token").write_text(token_of_secret(secret, {"sub": role}, {}))
    keys: dict[str, object] = {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"file://{folder / 'secret.key'}",
        "authorizationEnabled": "true",
        "superUserRoles": ADMIN,
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"file://{folder / f'{ADMIN}.token'}",
    }
    return keys, folder / f"{ROLE}.token"


def permit(server: Server, folder: Path) -> None:
    """Grant the client's role, which is not a super user, the topics of the measurement."""
    url = f"http://127.0.0.1:{server.web_port}/admin/v2/namespaces/public/default/permissions/{ROLE}"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {(folder / 'admin.token').read_text()}"}
    body = b'["produce","consume"]'
    if not poll_until(lambda: listens(server.web_port), WEB_S):  # it listens after the port of the clients does
        raise RuntimeError(f"{server.name} has no web port after {WEB_S:g} s; see its log")
    urllib.request.urlopen(urllib.request.Request(url, body, headers, method="POST"), timeout=30).close()


def tls_pair(server: Server, tls_port: int, rate_min: float | None = None) -> Pair:
    return Pair(
        server=server.name,
        what="TLS",
        plain=Way(Port(server.name, server.port, server.pids)),
        secure=Way(Port(f"{server.name} tls", tls_port, server.pids), "_tls"),
        workloads=WORKLOADS,
        rate_min=rate_min,
    )


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(tls, name="scripts/bench tls", text=__doc__)


def tls(
    names: Annotated[list[str] | None, typer.Argument(metavar="[ROWS]...", help="tls, auth; default: both.")] = None,
    rounds: Annotated[int, typer.Option()] = 5,
    seconds: Annotated[float, typer.Option(help="Measured seconds of each flood.")] = 4,
    warm: Annotated[float, typer.Option(help="Seconds of load before measuring.")] = 20,
    no_pulsar: Annotated[bool, typer.Option("--no-pulsar")] = False,
) -> int:
    rows = names or ROWS
    if unknown := [each for each in rows if each not in ROWS]:
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(ROWS)}")
    lib = None if no_pulsar or "tls" not in rows else pulsar_jars()
    folder = Path(tempfile.mkdtemp(prefix="quire-bench-tls-"))
    samples: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    try:
        with contextlib.ExitStack() as stack:
            pairs = []
            port = free_port()
            own = settings(folder / "quire", port, free_port())
            plain = stack.enter_context(quire(folder / "quire", own))
            if "tls" in rows:
                pairs.append(tls_pair(plain, port, RATE_RATIO_MIN))
            if "auth" in rows:
                keys, token_file = access(folder / "auth")
                server = stack.enter_context(quire(folder / "auth", keys))
                permit(server, folder / "auth")
                way = Way(Port("quire auth", server.port, server.pids), token_file=token_file)
                pairs.append(
                    Pair(
                        server="quire",
                        what="auth",
                        plain=Way(Port(plain.name, plain.port, plain.pids)),
                        secure=way,
                        workloads=WORKLOADS[:1],
                        cpu_max=AUTH_RATIO_MAX,
                    )
                )
            if lib is not None:
                port = free_port()
                theirs = settings(folder / "pulsar", port, free_port())
                pairs.append(tls_pair(stack.enter_context(pulsar(folder / "pulsar", lib, theirs)), port))
            _warm(pairs, warm)
            for number in range(rounds):
                for pair in pairs:
                    ways = (pair.plain, pair.secure)
                    for workload in pair.workloads:
                        for way in ways if number % 2 == 0 else reversed(ways):
                            found = run_load(way.port, f"{workload}{way.suffix}", seconds, way.token_file)
                            samples.setdefault((pair.what, way.port.name, workload), []).append(found)
                            shown = "  ".join(f"{key} {value:,.3g}" for key, value in found.items())
                            console.print(f"round {number + 1}/{rounds}  {workload:<8} {way.port.name:<10} {shown}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _report(pairs, samples)
    return 0


def _warm(pairs: Sequence[Pair], seconds: float) -> None:
    """Run load on each server before it is measured."""
    warmed: set[int] = set()
    for pair in pairs if seconds else ():
        for way in (pair.plain, pair.secure):
            if way.port.pids[0] not in warmed and not way.suffix:
                warmed.add(way.port.pids[0])
                run_load(way.port, "warm", seconds, way.token_file)


def _report(pairs: Sequence[Pair], samples: dict[tuple[str, str, str], list[dict[str, float]]]) -> None:
    table = Table(title="security beside none (medians)")
    for column in ("server", "with", "workload", "unit", "without", "with", "ratio", "expected", ""):
        table.add_column(column)
    for pair in pairs:
        for workload in pair.workloads:
            plain = samples[pair.what, pair.plain.port.name, workload]
            secure = samples[pair.what, pair.secure.port.name, workload]
            for key, unit, scale in (("rate", "k/s", 1e-3), ("cpu_us", "us", 1.0)):
                ratio = statistics.median(b[key] / a[key] for a, b in zip(plain, secure, strict=True))
                expected = verdict = ""
                if key == "rate" and pair.rate_min is not None and workload == WORKLOADS[0]:
                    expected, verdict = f">= {pair.rate_min}", "ok" if ratio >= pair.rate_min else "SHORT"
                if key == "cpu_us" and pair.cpu_max is not None:
                    expected, verdict = f"<= {pair.cpu_max}", "ok" if ratio <= pair.cpu_max else "SHORT"
                figures = [f"{statistics.median(each[key] for each in side) * scale:,.2f}" for side in (plain, secure)]
                table.add_row(pair.server, pair.what, workload, unit, *figures, f"{ratio:.3f}", expected, verdict)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
