"""quire.cli.admin.connection: requests, redirects, answers and errors, with a transport that makes no connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from quire.cli.admin.connection import AdminConnection, Target
from quire.cli.admin.errors import AdminCommandError, CommandLineError, NoAnswerError, RequestRefusedError
from quire.cli.admin.exchange import AdminAnswer, ExchangeError
from quire.cli.admin.verbs import Message, Request
from tests.unit.cli.admin.recording import error_of

TOKEN = Target(plugin="token", parameters="token:abc")
Answering = Callable[[str, str, Mapping[str, str], bytes | None], AdminAnswer]


class Prepared:
    """Exchange that makes no connection."""

    def __init__(self, answer: Answering) -> None:
        self.request = answer

    def close(self) -> None:
        pass


def sent(request: Request, answer: Answering | AdminAnswer, target: Target = TOKEN) -> Any:
    def always(*_: object) -> AdminAnswer:
        assert isinstance(answer, AdminAnswer)
        return answer

    with AdminConnection(target, Prepared(always if isinstance(answer, AdminAnswer) else answer)) as connection:
        return connection.send(request)


def test_a_redirect_keeps_method_body_and_credentials() -> None:
    seen: list[tuple[str, str, bytes | None, str | None]] = []

    def answer(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> AdminAnswer:
        seen.append((method, url, body, headers.get("Authorization")))
        if "127.0.0.1" in url:
            return AdminAnswer(307, headers={"location": "http://owner:8080/admin/v2/x?y=z"})
        return AdminAnswer(204)

    assert sent(Request("POST", "/admin/v2/x?y=z", [1]), answer) is None
    assert seen == [
        ("POST", "http://127.0.0.1:8080/admin/v2/x?y=z", b"[1]", "Bearer abc"),
        ("POST", "http://owner:8080/admin/v2/x?y=z", b"[1]", "Bearer abc"),
    ]


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("https://owner:8443/x", "of another scheme"),
        ("", "redirects to nowhere"),
        ("/again", "was redirected 10 times"),
    ],
)
def test_bad_redirects_end_the_command(location: str, text: str) -> None:
    response = AdminAnswer(307, headers={"location": location})
    error = error_of(NoAnswerError, lambda: sent(Request("GET", "/x"), response))
    assert text in str(error)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (AdminAnswer(204), None),
        (AdminAnswer(200, body=b'{"a": 1}'), {"a": 1}),
        (AdminAnswer(200, body=b"4.2.4"), "4.2.4"),
        (AdminAnswer(200, body=b"0x00000000_0x40000000"), "0x00000000_0x40000000"),
        (
            AdminAnswer(200, body=b"\xff", headers={"x-pulsar-message-id": "1:2", "date": "now"}),
            Message({"x-pulsar-message-id": "1:2"}, b"\xff"),
        ),
    ],
)
def test_answers_are_json_texts_and_messages(response: AdminAnswer, answer: Any) -> None:
    assert sent(Request("GET", "/x"), response) == answer


@pytest.mark.parametrize(
    ("status", "path", "text"),
    [
        (401, "/x", "The broker does not take these credentials"),
        (403, "/x", "an administrator gives it with `grant-permission`"),
        (404, "/admin/v2/persistent/t/n/x", "`quire admin topics list TENANT/NAMESPACE` has the topics"),
        (404, "/admin/v2/persistent/t/n/x/subscription/s", "`quire admin topics subscriptions TOPIC`"),
        (404, "/admin/v2/namespaces/t/n", "`quire admin namespaces list TENANT`"),
        (409, "/x", "use the verb that updates it, or try again"),
        (412, "/x", "Change what the reason names"),
        (501, "/x", "docs/unsupported.md"),
        (503, "/x", "try again"),
        (418, "/x", "The log of the broker may have the cause"),
    ],
)
def test_a_refusal_has_status_reason_and_remedy(status: int, path: str, text: str) -> None:
    response = AdminAnswer(status, "", {}, json.dumps({"reason": "so it is."}).encode())
    error = error_of(RequestRefusedError, lambda: sent(Request("GET", path), response))
    assert str(error).startswith(f"{status}: so it is. ")
    assert text in str(error)
    assert (error.status, error.passing) == (status, status == 503)


def test_a_refusal_without_a_reason_has_its_text_or_phrase() -> None:
    assert "404: gone. " in str(
        error_of(RequestRefusedError, lambda: sent(Request("GET", "/x"), AdminAnswer(404, body=b"gone")))
    )
    assert "404: Not Found. " in str(
        error_of(RequestRefusedError, lambda: sent(Request("GET", "/x"), AdminAnswer(404, "Not Found", {}, b"{}")))
    )


def test_without_credentials_a_401_says_how_to_give_them() -> None:
    error = error_of(RequestRefusedError, lambda: sent(Request("GET", "/x"), AdminAnswer(401), Target()))
    assert "Give credentials: --auth-plugin and --auth-params, or a context" in str(error)


def test_silence_names_the_address_and_the_context() -> None:
    def answer(*_: object) -> AdminAnswer:
        raise ExchangeError("refused")

    target = Target(url="http://u:secret@b:1", context="prod")
    error = error_of(NoAnswerError, lambda: sent(Request("GET", "/x"), answer, target))
    assert str(error) == (
        "no answer from http://b:1: refused. Check that a broker serves there, and the address of context prod"
    )


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (Target(url="pulsar://b:6650"), "is no web address: give http://host:8080"),
        (Target(plugin="token", parameters="file:///nonexistent/t"), "credentials: /nonexistent/t cannot be read"),
        (Target(plugin="kerberos"), "credentials: there is no kerberos"),
        (Target(url="https://b", trust_file="/nonexistent/ca"), "TLS: "),
        (Target(url="https://b", certificate_file="a"), "TLS: a TLS certificate needs its key"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_before_a_request(target: Target, text: str) -> None:
    error = error_of(AdminCommandError, lambda: sent(Request("GET", "/x"), AdminAnswer(204), target))
    assert (isinstance(error, CommandLineError), text in str(error)) == (True, True), error
