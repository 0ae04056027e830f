"""quire.cli.admin.connection: requests, redirects, answers and errors, with a transport that makes no connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from quire.cli.admin.connection import AdminConnection, Target
from quire.cli.admin.errors import AdminCommandError, CommandLineError, NoAnswerError, RequestRefusedError
from quire.cli.admin.verbs import Message, Request
from tests.unit.cli.admin.recording import error_of

TOKEN = Target(plugin="token", parameters="token:abc")


def sent(request: Request, answer: Callable[[httpx2.Request], httpx2.Response], target: Target = TOKEN) -> Any:
    with AdminConnection(target, httpx2.MockTransport(answer)) as connection:
        return connection.send(request)


def test_a_redirect_keeps_method_body_and_credentials() -> None:
    seen: list[tuple[str, str, bytes, str | None]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.method, str(request.url), request.content, request.headers.get("authorization")))
        if request.url.host == "127.0.0.1":
            return httpx2.Response(307, headers={"Location": "http://owner:8080/admin/v2/x?y=z"})
        return httpx2.Response(204)

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
    response = httpx2.Response(307, headers={"location": location})
    error = error_of(NoAnswerError, lambda: sent(Request("GET", "/x"), lambda _: response))
    assert text in str(error)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (httpx2.Response(204), None),
        (httpx2.Response(200, json={"a": 1}), {"a": 1}),
        (httpx2.Response(200, text="4.2.4"), "4.2.4"),
        (httpx2.Response(200, text="0x00000000_0x40000000"), "0x00000000_0x40000000"),
        (
            httpx2.Response(200, content=b"\xff", headers={"X-Pulsar-Message-ID": "1:2", "Date": "now"}),
            Message({"x-pulsar-message-id": "1:2"}, b"\xff"),
        ),
    ],
)
def test_answers_are_json_texts_and_messages(response: httpx2.Response, answer: Any) -> None:
    assert sent(Request("GET", "/x"), lambda _: response) == answer


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
    response = httpx2.Response(status, json={"reason": "so it is."})
    error = error_of(RequestRefusedError, lambda: sent(Request("GET", path), lambda _: response))
    assert str(error).startswith(f"{status}: so it is. ")
    assert text in str(error)
    assert (error.status, error.passing) == (status, status == 503)


def test_a_refusal_without_a_reason_has_its_text_or_phrase() -> None:
    assert "404: gone. " in str(
        error_of(RequestRefusedError, lambda: sent(Request("GET", "/x"), lambda _: httpx2.Response(404, text="gone")))
    )
    assert "404: Not Found. " in str(
        error_of(RequestRefusedError, lambda: sent(Request("GET", "/x"), lambda _: httpx2.Response(404, json={})))
    )


def test_without_credentials_a_401_says_how_to_give_them() -> None:
    error = error_of(RequestRefusedError, lambda: sent(Request("GET", "/x"), lambda _: httpx2.Response(401), Target()))
    assert "Give credentials: --auth-plugin and --auth-params, or a context" in str(error)


def test_silence_names_the_address_and_the_context() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    target = Target(url="http://b:1", context="prod")
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
    error = error_of(AdminCommandError, lambda: sent(Request("GET", "/x"), lambda _: httpx2.Response(204), target))
    assert (isinstance(error, CommandLineError), text in str(error)) == (True, True), error
