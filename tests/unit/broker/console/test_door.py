"""The console's door: files without credentials, and redirects that it follows with the caller's own."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message

from broker.console.assets import load
from broker.console.door import ConsoleDoor


class NotingRelay:
    """A relay that notes what it is asked."""

    deadline_s = 1.0

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes, str]] = []

    async def request(self, method: str, url: str, body: bytes, authorization: str) -> Response:
        self.asked.append((method, url, body, authorization))
        return JSONResponse({"from": "the owner"})


async def moved(request: Request) -> Response:
    return Response(status_code=307, headers={"Location": f"http://other:8080{request.url.path}"})


async def call(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[Any, NotingRelay]:
    relay = NotingRelay()
    inner = Starlette(routes=[Route("/admin/{rest:path}", moved, methods=["GET", "PUT"])])
    door = ConsoleDoor(inner, relay)
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(key.lower().encode(), value.encode()) for key, value in headers.items()],
    }
    sent: list[Message] = []
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await door(scope, receive, send)
    return sent, relay


async def test_a_redirect_is_followed_for_pages_of_the_console_with_the_callers_credentials_only():
    sent, relay = await call("PUT", "/admin/v2/x", {"Quire-Console": "1", "Authorization": "Bearer t"}, b"[1]")
    assert relay.asked == [("PUT", "http://other:8080/admin/v2/x", b"[1]", "Bearer t")]
    assert [each["status"] for each in sent if each["type"] == "http.response.start"] == [200]
    assert b"the owner" in sent[-1]["body"]


async def test_programs_get_the_redirect_itself():
    sent, relay = await call("PUT", "/admin/v2/x", {"Authorization": "Bearer t"})
    assert sent[0]["status"] == 307
    assert not relay.asked


async def test_another_site_gets_no_data_of_the_console():
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 404)):
        sent, _ = await call("GET", "/console/api/topics", {"Sec-Fetch-Site": site})
        assert sent[0]["status"] == status


async def test_files_have_a_strict_policy_and_are_not_sent_again():
    sent, _ = await call("GET", "/console/", {})
    headers = dict(sent[0]["headers"])
    policy = headers[b"content-security-policy"].decode()
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    again, _ = await call("GET", "/console/", {"If-None-Match": headers[b"etag"].decode()})
    assert again[0]["status"] == 304


async def test_a_path_that_is_no_file_passes():
    for path in ("/console/nothing.js", "/console/../broker/config.py", "/console/static/app.js"):
        sent, _ = await call("GET", path, {})
        assert sent[0]["status"] == 404


def test_no_file_holds_markup_that_runs_or_an_address_outside():
    for path, asset in load().items():
        text = asset.body.decode()
        assert "innerHTML" not in text, path
        for scheme in ("http:" + "//", "https:" + "//"):
            outside = text.replace(f"{scheme}www.w3.org/2000/svg", "")
            assert scheme not in outside, path
        if path.endswith(".html"):
            assert "<style" not in text
            assert " style=" not in text
            assert text.count("<script ") == text.count("<script")


async def test_only_files_of_the_console_are_served_whatever_the_path_says():
    for path in (
        "/console/../door.py",
        "/console/static/app.js",
        "/console/..%2f..%2fdoor.py",
        "/console//app.js",
        "/console/./app.js",
        "/console/app.js/",
        "/console/APP.JS",
        "/console/app.js\0.css",
        "/console/%61pp.js",
    ):
        sent, _ = await call("GET", path, {})
        assert sent[0]["status"] == 404, path
    sent, _ = await call("POST", "/console/app.js", {})
    assert sent[0]["status"] == 404
