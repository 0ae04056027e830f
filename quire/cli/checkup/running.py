"""Checks of a running server over its web port: `quire doctor --url`. Blocking."""

from __future__ import annotations

import datetime
import email.utils
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2
from cryptography import x509

from quire.cli.checkup import verdicts
from quire.cli.checkup.certificates import of_certificate
from quire.cli.checkup.verdicts import CheckResult
from quire.distribution import installed_version

ANSWER_S: Final = 10.0
HEALTH_S: Final = 30.0
OF_BOOKIE: Final = "/heartbeat"
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{[^}]*\})? ([0-9.e+-]+|NaN)$", re.MULTILINE)
_UNREACHED: Final = "Start the server, or correct the address; see the end of its log"


def examine(
    url: str, token_file: Path | None, trust_file: Path | None, certificate: tuple[Path, Path] | None = None
) -> Iterator[CheckResult]:
    """Yield the verdicts about a broker, a standalone server or a bookie with a web port.

    Args:
        certificate: files of the certificate that is shown to it, and of its key; None: none is shown.
    """
    url = url.rstrip("/")
    headers = {}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {token_file.read_text().strip()}"
    context = ssl.create_default_context(cafile=None if trust_file is None else str(trust_file))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    if urlsplit(url).scheme == "https":
        yield from _shown_certificate(url)
    with httpx2.Client(headers=headers, verify=context, timeout=ANSWER_S, follow_redirects=True) as client:
        try:
            begun = time.time()
            first = client.get(f"{url}/status.html")
            ended = time.time()
        except httpx2.HTTPError as error:
            yield verdicts.bad("reachable", f"{url}: {error or type(error).__name__}", _UNREACHED)
            return
        yield verdicts.ok("reachable", f"{url} answers")
        if "date" in first.headers:
            told = email.utils.parsedate_to_datetime(first.headers["date"]).timestamp()
            yield verdicts.clock(url, told - (begun + ended) / 2, resolution_s=1.0 + ended - begun)
        if first.status_code == 404:
            yield from _bookie(client, url)
        else:
            yield from _broker(client, url, first)
        yield from _metrics(client, url)


def _broker(client: httpx2.Client, url: str, status: httpx2.Response) -> Iterator[CheckResult]:
    if status.text.startswith("READ ONLY"):
        yield verdicts.bad("status", status.text.strip(), "docs/runbooks/disk-full.md")
    elif status.is_success:
        yield verdicts.ok("status", status.text.strip())
    else:
        yield verdicts.bad("status", f"status.html answers {status.status_code}", _UNREACHED)
    yield _answer(client, url, "ready", "/admin/v2/brokers/ready", "Wait for its start; see its log")
    yield _answer(client, url, "health", "/admin/v2/brokers/health", "Do what the reason says; see its log")
    answer = _get(client, f"{url}/admin/v2/brokers/version")
    if answer is not None and answer.is_success:
        yield _version(url, answer.text.strip().strip('"'))


def _version(url: str, theirs: str) -> CheckResult:
    ours = installed_version()
    if ours in theirs:
        return verdicts.ok("versions", f"{url} is {theirs}, the same as here")
    return verdicts.warning(
        "versions", f"{url} is {theirs}, and this program is {ours}", "Finish the upgrade: docs/runbooks/upgrade.md"
    )


def _bookie(client: httpx2.Client, url: str) -> Iterator[CheckResult]:
    yield _answer(client, url, "ready", OF_BOOKIE, _UNREACHED)
    yield _answer(client, url, "health", "/api/v1/bookie/sanity", "A write or a read fails: see the log of the bookie")


def _answer(client: httpx2.Client, url: str, name: str, path: str, remedy: str) -> CheckResult:
    answer = _get(client, url + path, HEALTH_S)
    if answer is None:
        return verdicts.bad(name, f"{path} does not answer within {HEALTH_S:g} s", remedy)
    if answer.status_code in (401, 403):
        return verdicts.bad(name, f"{path} answers {answer.status_code}", "Give --token-file with a role that may ask")
    text = " ".join(answer.text.split())[:300]
    if answer.is_success:
        return verdicts.ok(name, f"{path} answers {text or answer.status_code}")
    return verdicts.bad(name, f"{path} answers {answer.status_code}: {text}", remedy)


def _get(client: httpx2.Client, url: str, timeout_s: float = ANSWER_S) -> httpx2.Response | None:
    try:
        return client.get(url, timeout=timeout_s)
    except httpx2.HTTPError:
        return None


def _metrics(client: httpx2.Client, url: str) -> Iterator[CheckResult]:
    answer = _get(client, f"{url}/metrics")
    if answer is None or not answer.is_success:
        status = "does not answer" if answer is None else f"answers {answer.status_code}"
        yield verdicts.warning("metrics", f"/metrics {status}", "Give --token-file, or see its log")
        return
    values = {name: float(value) for name, value in _SAMPLE.findall(answer.text)}
    if values.get("quire_metadata_connected") == 0:
        yield verdicts.bad("metadata", f"{url} does not reach ZooKeeper", "docs/runbooks/zookeeper-gone.md")
    elif "quire_metadata_connected" in values:
        yield verdicts.ok("metadata", f"{url} is connected to ZooKeeper")
    ledgers, logs = values.get("quire_bookie_scrub_damaged_ledgers"), values.get("quire_bookie_scrub_damaged_logs")
    if ledgers is not None and logs is not None:
        yield verdicts.scrubbed(url, ledgers, logs)
    open_now, limit = values.get("process_open_fds"), values.get("process_max_fds")
    if open_now is not None and limit:
        yield verdicts.open_descriptors("", open_now, limit)


def _shown_certificate(url: str) -> Iterator[CheckResult]:
    """Yield the verdict about the certificate that a server shows, whether it is trusted or not."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    try:
        pem = ssl.get_server_certificate((host, port), timeout=ANSWER_S)
    except OSError as error:
        yield verdicts.bad("certificates", f"{url} shows no certificate: {error}", _UNREACHED)
        return
    found = x509.load_pem_x509_certificate(pem.encode())
    yield of_certificate(url, found, datetime.datetime.now(datetime.UTC))
