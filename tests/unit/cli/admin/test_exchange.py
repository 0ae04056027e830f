"""quire.cli.admin.exchange: requests over real sockets, in order of what can go wrong with a server"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from quire.cli.admin.connection import AdminConnection, Target
from quire.cli.admin.errors import NoAnswerError
from quire.cli.admin.exchange import AdminAnswer, ExchangeError, HttpExchange
from quire.cli.admin.verbs import Request
from quire.world.real_tls import TlsFiles
from tests.support.certificates import Authority
from tests.unit.cli.admin.recording import error_of

Story = Callable[[socket.socket], None]
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
PATIENCE_S = 30.0


def head(connection: socket.socket) -> bytes:
    """Return the head of the next request."""
    read = b""
    while not read.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, read
        read += byte
    return read


def answering(*answers: bytes) -> Story:
    def story(connection: socket.socket) -> None:
        for answer in answers:
            head(connection)
            connection.sendall(answer)

    return story


@contextmanager
def server(*stories: Story, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve each connection by the next story; yield host and port. All connections must come."""
    errors: list[BaseException] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)

        def serve() -> None:
            try:
                for story in stories:
                    raw, _ = listener.accept()
                    raw.settimeout(PATIENCE_S)
                    with raw if context is None else context.wrap_socket(raw, server_side=True) as connection:
                        story(connection)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert errors == []


def get(url: str, timeout_s: float = PATIENCE_S, body: bytes | None = None) -> AdminAnswer:
    with closing(HttpExchange(timeout_s, None)) as exchange:
        return exchange.request("GET" if body is None else "POST", url, {}, body)


def test_requests_to_one_server_use_one_connection_and_have_its_whole_answers() -> None:
    first = (
        b"HTTP/1.1 404 Not Found\r\nX-A: 1\r\nx-a: 2\r\nX-Name: caf\xc3\xa9\r\nX-Old: \xe9\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3\r\n\xff\x00a\r\n0\r\n\r\n"
    )
    with server(answering(first, EMPTY)) as place, closing(HttpExchange(PATIENCE_S, None)) as exchange:
        answer = exchange.request("GET", f"http://{place}/x", {}, None)
        assert (answer.status, answer.reason, answer.body) == (404, "Not Found", b"\xff\x00a")
        assert {name: answer.headers[name] for name in ("x-a", "x-name", "x-old")} == {
            "x-a": "1, 2",
            "x-name": "caf\u00e9",
            "x-old": "\u00e9",
        }
        assert exchange.request("DELETE", f"http://{place}/x", {}, None).status == 204


def test_a_connection_that_the_server_has_closed_is_made_anew() -> None:
    with server(answering(EMPTY), answering(EMPTY)) as place, closing(HttpExchange(PATIENCE_S, None)) as exchange:
        exchange.request("GET", f"http://{place}/x", {}, None)
        connection = exchange._open[f"http://{place}"]
        assert connection.http.sock is not None
        connection.http.sock.recv(1, socket.MSG_PEEK)  # (waits for the end)
        assert exchange.request("POST", f"http://{place}/x", {}, b"x").status == 204


def test_the_request_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a proxy of the environment, nor a space or an escape in an address, changes it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    seen: list[bytes] = []

    def story(connection: socket.socket) -> None:
        seen.append(head(connection))
        connection.sendall(EMPTY)

    with server(story) as place:
        assert get(f"http://u%40:p:w@{place}/a%2Fb/\u00e9?c=d e&f=%26#g").status == 204
    line, *headers = seen[0].decode().splitlines()
    assert line == "GET /a%2Fb/%C3%A9?c=d%20e&f=%26 HTTP/1.1"
    assert f"Host: {place}" in headers
    assert f"Authorization: Basic {base64.b64encode(b'u@:p:w').decode()}" in headers


def test_an_answer_that_comes_before_the_body_is_read_is_read() -> None:
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    def story(connection: socket.socket) -> None:
        head(connection)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass

    with server(story) as place:
        assert get(f"http://{place}/", body=bytes(8 << 20)).status == 413


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ((b"",), "Remote end closed connection without response"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",), "IncompleteRead(3 bytes read, 6 more expected)"),
        ((b"SSH-2.0-x\r\n",), "SSH-2.0-x"),
    ],
)
def test_half_an_answer_is_none(answers: tuple[bytes, ...], text: str) -> None:
    with server(answering(*answers)) as place:
        assert text in str(error_of(ExchangeError, lambda: get(f"http://{place}/")))


def test_silence_ends_at_the_timeout() -> None:
    def story(connection: socket.socket) -> None:
        head(connection)
        assert connection.recv(1) == b""

    with server(story) as place:
        assert "timed out" in str(error_of(ExchangeError, lambda: get(f"http://{place}/", timeout_s=0.05)))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "http://", "http://a:b/", "http://127.0.0.1:99999/", f"http://{'a' * 64}/"]
)
def test_an_address_that_cannot_be_reached_is_an_error(url: str) -> None:
    assert str(error_of(ExchangeError, lambda: get(url)))


def test_a_redirect_is_followed_to_another_server_with_credentials() -> None:
    seen: list[bytes] = []

    def owner(connection: socket.socket) -> None:
        seen.append(head(connection) + connection.recv(3))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with server(owner) as second:
        redirect = f"HTTP/1.1 307 R\r\nLocation: http://{second}/y\r\nContent-Length: 0\r\n\r\n".encode()

        def story(connection: socket.socket) -> None:
            head(connection)
            assert connection.recv(3) == b"[1]"
            connection.sendall(redirect)

        target = Target(plugin="basic", parameters='{"userId": "u", "password": "p"}')
        with (
            server(story) as first,
            AdminConnection(
                Target(url=f"http://{first}/", plugin=target.plugin, parameters=target.parameters)
            ) as connection,
        ):
            assert connection.send(Request("POST", "/x", [1])) == {}
    assert seen[0].startswith(b"POST /y HTTP/1.1\r\n")
    assert b"Authorization: Basic dTpw\r\n" in seen[0]
    assert seen[0].endswith(b"\r\n\r\n[1]")


def test_a_client_certificate_is_shown_and_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    options = authority.server(require_certificate=True)
    context = TlsFiles(options, server_side=True).context
    pair = authority.issue("admin", file="admin")
    names: list[object] = []

    def story(connection: socket.socket) -> None:
        assert isinstance(connection, ssl.SSLSocket)
        certificate = connection.getpeercert()
        assert certificate is not None
        names.append(certificate["subjectAltName"])
        answering(EMPTY)(connection)

    with server(story, context=context) as place:
        target = Target(
            url=f"https://{place}",
            trust_file=str(authority.trust),
            certificate_file=str(pair.certificate),
            key_file=str(pair.key),
        )
        with AdminConnection(target) as connection:
            assert connection.send(Request("GET", "/x")) is None
    assert names == [(("DNS", "admin"),)]
    Authority(tmp_path, "other")
    plain = TlsFiles(authority.server(), server_side=True).context
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refused() -> None:
            raw, _ = listener.accept()
            with raw, pytest.raises(ssl.SSLError):
                plain.wrap_socket(raw, server_side=True)

        thread = threading.Thread(target=refused)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with AdminConnection(Target(url=url, trust_file=str(tmp_path / "other.pem"))) as connection:
            error = error_of(NoAnswerError, lambda: connection.send(Request("GET", "/x")))
        thread.join(PATIENCE_S)
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)
