"""`quire admin explain`, against a server that gives prepared answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from quire.cli.main import app

ANSWER: dict[str, Any] = {
    "subject": "subscription s of persistent://public/default/a b",
    "state": "blocked",
    "cause": "no-consumers",
    "sentence": "3 entries wait and no consumer is connected.",
    "since_ms": None,
    "remedy": "Connect a consumer.",
    "details": {},
}
TEXT = f"{ANSWER['subject']}: blocked, no-consumers\n  {ANSWER['sentence']}\n  remedy: {ANSWER['remedy']}\n"
TOPIC = "/admin/v2/persistent/public/default/a%20b"


class Server(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, Any]]] = {}

    def do_GET(self) -> None:
        status, body = self.answers[self.path]
        self.send_response(status)
        if status == 307:
            self.send_header("Location", body)
        data = b"" if status == 307 else json.dumps(body).encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def explain(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["admin", "explain", *words])
    return done.exit_code, done.stdout, done.stderr


def test_a_subscription_is_told_by_the_owner_of_its_topic(url: str) -> None:
    path = f"{TOPIC}/subscription/s%2F1/explain"
    Server.answers = {path: (307, f"{url}/owner"), "/owner": (200, ANSWER)}
    assert explain("a b", "--subscription", "s/1", "--url", url) == (0, TEXT, "")
    assert json.loads(explain("a b", "-s", "s/1", "--url", url, "--json")[1]) == ANSWER


def test_a_topic_is_told_with_its_producers_subscriptions_and_ledgers(url: str) -> None:
    whole = {"topic": "t", "producers": ANSWER, "ledgers": [ANSWER, ANSWER], "subscriptions": {"s": ANSWER}}
    Server.answers = {f"{TOPIC}/explain": (200, {"partitions": {"p0": whole, "p1": whole}})}
    assert explain("persistent://public/default/a b", "--url", f"{url}/") == (0, TEXT * 8, "")


def test_a_time_is_told_as_an_age(url: str) -> None:
    Server.answers = {f"{TOPIC}/explain": (200, {**ANSWER, "since_ms": 0})}
    [line, *_] = explain("a b", "--url", url)[1].splitlines()
    assert line.startswith(f"{ANSWER['subject']}: blocked, no-consumers (for ")


def test_refusals_and_silence_have_exit_codes(url: str) -> None:
    Server.answers = {f"{TOPIC}/explain": (404, {"reason": "no such topic"})}
    assert explain("a b", "--url", url) == (1, "", "quire admin explain: no such topic\n")
    assert explain("persistent://a", "--url", url)[0] == 1
    code, _, said = explain("a b", "--url", "http://127.0.0.1:1")
    assert (code, said.startswith("quire admin explain: no answer from http://127.0.0.1:1: ")) == (2, True)
