"""Prometheus as a child process, and the questions that tests and scripts/quiet-alerts ask it."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.waiting import poll_until
from tools.local_cluster.ports import free_ports
from tools.monitoring.example import scrape_text

READY_S: Final = 30.0
STOP_S: Final = 10.0
ANSWER_S: Final = 10.0
Labels = Mapping[str, str]


class PrometheusError(Exception):
    """Prometheus does not start, or refuses a question. The text has its reason."""


class Prometheus:
    """A running Prometheus, asked over its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def values(self, expression: str) -> list[tuple[Labels, float]]:
        """Return the present values of an expression. PrometheusError: it is wrong."""
        found = self._ask("query", query=expression)["result"]
        if isinstance(found, list) and found and not isinstance(found[0], dict):
            return [({}, float(found[1]))]  # a scalar
        return [(each["metric"], float(each["value"][1])) for each in found]

    def down(self) -> list[str]:
        """Return the targets that were not scraped with success, each with the reason."""
        targets = self._ask("targets")["activeTargets"]
        return [f"{each['scrapeUrl']}: {each['lastError']}" for each in targets if each["health"] != "up"]

    def alerts(self, *states: str) -> list[Labels]:
        """Return the labels of alerts in one of the states, "pending" or "firing"."""
        found = self._ask("alerts")["alerts"]
        return [each["labels"] for each in found if each["state"] in states]

    def rules(self) -> list[dict[str, Any]]:
        """Return the loaded rules, each with its health and last error."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def _ask(self, path: str, **parameters: str) -> dict[str, Any]:
        request = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                found: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise PrometheusError(f"{path} {parameters}: {error.read().decode(errors='replace')}") from error
        return found


@contextmanager
def prometheus(
    program: str, folder: Path, targets: Mapping[str, Sequence[str]], rules: str, *, interval: str
) -> Iterator[Prometheus]:
    """Run Prometheus, which scrapes `targets` (by job) every `interval`, with the text of a file of rules.

    Args:
        program: path of Debian's `prometheus`.
        folder: folder of its files, which is created.

    Raises:
        PrometheusError: it does not start.
    """
    folder.mkdir(parents=True)
    (folder / "rules.yml").write_text(rules)
    config = folder / "prometheus.yml"
    config.write_text(scrape_text(targets, rules="rules.yml", interval=interval))
    [port] = free_ports(1)
    options = (
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )
    log = folder / "log"
    with open(log, "wb") as output:
        child = subprocess.Popen([program, *options], stdout=output, stderr=output, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        if not poll_until(lambda: child.poll() is not None or _ready(url), READY_S) or child.poll() is not None:
            raise PrometheusError(f"Prometheus does not start: {log.read_text(errors='replace')[-2000:]}")
        yield Prometheus(url)
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=ANSWER_S):
            return True
    except OSError:
        return False


def substituted(expression: str, window: str) -> str:
    """Return the expression of a panel as Grafana sends it with all values chosen.

    >>> substituted('rate(a{job=~"$job"}[$__rate_interval])', "5s")
    'rate(a{job=~".*"}[5s])'
    """
    for name in ("job", "instance", "namespace", "subscription"):
        expression = expression.replace(f'"${name}"', '".*"')
    expression = expression.replace("$__rate_interval", window)
    assert "$" not in expression, f"an unknown variable: {expression}"
    return expression
