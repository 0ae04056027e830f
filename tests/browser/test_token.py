"""The console of a server that asks for credentials."""

from __future__ import annotations

import base64
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Browser, Error, Playwright, expect

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.browser.conftest import launched
from tests.browser.looking import Look, looking_at
from tests.browser.trusting import trusting
from tests.support import credentials, web
from tests.support.certificates import Authority, Pair
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess, free_port, standalone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Authority(tmp_path_factory.mktemp("authority")).issue("127.0.0.1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: Pair) -> Iterator[StandaloneProcess]:
    conf: dict[str, object] = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{credentials.TOKEN},{credentials.BASIC}",
        "tokenSecretKey": credentials.DATA_URL,
        "basicAuthConf": "data:;base64," + base64.b64encode(credentials.USERS.encode()).decode(),
        "authorizationEnabled": "true",
        "superUserRoles": "admin",
        "webServicePortTls": free_port(),
        "tlsCertificateFilePath": certificate.certificate,
        "tlsKeyFilePath": certificate.key,
        "tlsCertRefreshCheckDurationSec": 1,
    }
    with standalone(tmp_path_factory.mktemp("token"), conf) as started:
        yield started


def enter(look: Look, token: str) -> None:
    look.button("Enter a token").first.click()
    look.page.locator("dialog input").fill(token)
    look.confirm("Use token")


def test_files_need_no_token_and_data_do(look: Look):
    assert web.get(f"{look.base}/console/").status_code == 200
    assert web.get(f"{look.base}/console/app.js").status_code == 200
    for path in (
        "topics",
        "whoami",
        "loaded-topics",
        "topic-events",
        "topics/public/default",
        "messages/public/default/a",
    ):
        assert web.get(f"{look.base}/console/api/{path}").status_code == 401, path
    assert web.get(f"{look.base}/console/%61pi/topics").status_code == 401


def test_a_page_asks_for_a_token_and_keeps_it_in_the_tab_only(look: Look):
    look.expected.append("401")
    look.go("topics")
    look.shows("Not permitted, or no valid token")
    look.accessible()
    enter(look, credentials.token("admin"))
    look.shows("There are no topics yet.")
    expect(look.page.locator(".live-state")).to_have_text("live")
    stored = look.page.evaluate("[sessionStorage.length, JSON.stringify(localStorage), document.cookie]")
    assert stored == [1, "{}", ""]
    look.page.reload()
    look.shows("There are no topics yet.")
    assert look.page.context.cookies() == []


def test_a_role_sees_what_it_may_and_the_rest_looks_missing_and_forbidden_alike(look: Look):
    look.expected.append("401")
    look.go("topics")
    enter(look, credentials.token("stranger"))
    look.shows("Not permitted, or no valid token")
    seen = []
    for name in ("persistent://public/default/there-is-none", "persistent://nowhere/default/x"):
        look.topic(name)
        seen.append(look.page.locator("main .notice p").first.inner_text())
    assert seen[0] == seen[1]
    assert "Not permitted" in seen[0]


def test_a_name_and_a_password_sign_in_too(look: Look):
    look.expected.append("401")
    look.go("topics")
    enter(look, "Basic " + base64.b64encode(b"admin:wrong").decode())
    look.shows("Not permitted, or no valid token")
    enter(look, "Basic " + base64.b64encode(f"admin:{credentials.PASSWORD}".encode()).decode())
    look.shows("There are no topics yet.")
    expect(look.page.locator(".live-state")).to_have_text("live")


def test_a_page_over_https_signs_in_with_a_trusted_certificate_and_does_not_load_with_another(
    playwright: Playwright, browser: Browser, server: StandaloneProcess, certificate: Pair
):
    base = f"https://127.0.0.1:{server.settings['webServicePortTls']}"
    with launched(playwright, trusting([certificate.certificate])) as trustful, looking_at(trustful, base) as look:
        look.expected.append("401")
        look.go("topics")
        enter(look, credentials.token("admin"))
        look.shows("There are no topics yet.")
        expect(look.page.locator(".live-state")).to_have_text("live")
        assert look.page.evaluate("isSecureContext && location.protocol") == "https:"
    with pytest.raises(Error, match="ERR_CERT_AUTHORITY_INVALID"):
        browser.new_page().goto(f"{base}/console/")


def test_no_secret_is_in_the_warnings_that_the_console_shows(
    look: Look, server: StandaloneProcess, certificate: Pair
) -> None:
    """Secrets arrive in right places and in wrong ones, and each refusal is a line of the log."""
    secrets = [f"secret-{number}-0123456789" for number in range(6)]
    pair = base64.b64encode(f"admin:{secrets[0]}".encode()).decode()
    headers = [f"Basic {pair}", f"Bearer {secrets[1]}", f"Basic {secrets[2]}", secrets[3]]
    for header in headers:
        for path in ("/admin/v2/tenants", "/console/api/topics", f"/admin/v2/tenants/{secrets[1]}"):
            assert web.get(f"{look.base}{path}", headers={"Authorization": header}).status_code == 401
    for method, data in (("token", secrets[4]), ("token", credentials.token("admin") + "x"), ("basic", pair)):
        with RawClient(server.port, connect=False) as client:
            command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
            command.connect.client_version, command.connect.protocol_version = "raw", 21
            command.connect.auth_method_name, command.connect.auth_data = method, data.encode()
            client.send(command)
            assert client.receive().type == pb.BaseCommand.ERROR
    request = f"GET /?token={secrets[5]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secrets[5]}\r\n\r\n".encode()
    for port in (server.port, server.settings["webServicePortTls"]):
        with socket.create_connection(("127.0.0.1", int(str(port)))) as raw:
            raw.sendall(request + b"\0" * 64)
            raw.settimeout(20)
            with suppress(ConnectionError):
                raw.recv(1 << 16)
    kept = certificate.certificate.read_bytes()
    key = certificate.key.read_text()
    certificate.certificate.write_text(key)  # the files are swapped by mistake
    base = f"https://127.0.0.1:{server.settings['webServicePortTls']}/console/"
    trust = ssl._create_unverified_context()

    def warnings() -> str:
        with suppress(OSError, urllib.error.URLError):
            urllib.request.urlopen(base, context=trust, timeout=20).close()
        admin = {"Authorization": f"Bearer {credentials.token('admin')}"}
        return str(web.get(f"{look.base}/quire/warnings", headers=admin).text)

    try:
        wait_until(lambda: "tls files cannot be used" in warnings())
    finally:
        certificate.certificate.write_bytes(kept)
    look.expected.append("401")
    look.go("logs")
    enter(look, credentials.token("admin"))
    look.shows("authentication failed")
    look.shows("protocol violation")
    look.shows("tls files cannot be used")
    lines = key.splitlines()[1:-1]
    for text in (warnings(), look.page.locator("main").inner_text(), server.log()):
        for secret in (*secrets, pair, credentials.token("admin"), credentials.PASSWORD, credentials.DATA_URL, *lines):
            assert secret not in text, f"{secret} in {text}"
