"""Pulsar's Java client and PulsarAdmin across renewed credentials: tokens that expire, certificates that are replaced
while server and clients run, and tokens of an issuer."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from pathlib import Path

from tests.interop.java_client import command, run
from tests.interop.secured import AUTH, Secured
from tests.support.certificates import Authority
from tests.support.credentials import OPEN_ID, TOKEN, token
from tests.support.issuer import AUDIENCE, CLIENT, issuing
from tests.support.process import wait_until

DEADLINE_S = 120.0
LASTS_S = 6
RENEWED = 3
"""Times that the producer is asked for its token, the first one included."""


def test_a_connection_outlives_its_tokens(tmp_path: Path) -> None:
    """The token of a producer expires every few seconds. It is asked for newer ones, and its connection stays."""
    secured = Secured(tmp_path)
    file, end = tmp_path / "renewed.token", threading.Event()

    def renew() -> None:
        while True:
            fresh = file.with_suffix(".new")
            fresh.write_text(token("admin", exp=int(time.time()) + LASTS_S))
            fresh.rename(file)
            if end.wait(0.5):
                return

    thread = threading.Thread(target=renew)
    with secured.served():
        thread.start()
        try:
            wait_until(file.exists, "a token")
            lines = run("Renewals", str(secured.clients()), "tokens", str(file), str(RENEWED), seconds=DEADLINE_S)
        finally:
            end.set()
            thread.join()
    assert "kept" in lines, lines


def test_clients_come_back_after_all_certificates_were_replaced(tmp_path: Path) -> None:
    """A client with a certificate sends on while the authority, the server's certificate and its own are replaced, and
    connects again with the new ones."""
    secured = Secured(tmp_path)
    with secured.served():
        settings = str(secured.clients())
        before = served_certificate(secured)
        with subprocess.Popen(
            command("Renewals", settings, "certificates", "certified"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            try:
                first = client.stdout.readline()
                assert first.startswith("sent "), first
                replace_all(secured)
                wait_until(lambda: served_certificate(secured) != before, "the new certificate")
                print("go on", file=client.stdin, flush=True)
                second = client.stdout.readline()
                assert second.startswith("sent "), second
                assert second != first, "the connection did not break"
                client.stdin.close()
                assert client.wait(DEADLINE_S) == 0
            finally:
                client.kill()


def test_a_client_gets_its_tokens_of_an_issuer(tmp_path: Path) -> None:
    """AuthenticationOAuth2 of Java's client, by both PulsarAdmin and the client; the issuer is on this machine."""
    calls = tmp_path / "calls.txt"
    calls.write_text("@oauth brokers.healthcheck\n@oauth client.produce persistent://public/default/reports 2\n")
    with issuing(tmp_path) as issuer:
        roles = f"admin,broker,{CLIENT}"
        providers = f"{TOKEN},{OPEN_ID}"
        secured = Secured(tmp_path, superUserRoles=roles, authenticationProviders=providers, **issuer.conf())
        settings = secured.clients()
        given = {
            "type": "client_credentials",
            "privateKey": f"file://{issuer.key_file}",
            "issuerUrl": issuer.url,
            "audience": AUDIENCE,
        }
        with open(settings, "a") as file:
            print(f"role.oauth={AUTH}oauth2.AuthenticationOAuth2 {json.dumps(given)}", file=file)
        with secured.served():
            lines = run("Calls", str(settings), str(calls), seconds=DEADLINE_S)
    assert lines.count("    returned ") == 2, lines
    assert issuer.asked


def replace_all(secured: Secured) -> None:
    """Replace the files of the authority, the server and the client with a certificate, each by a rename."""
    folder = secured.folder / "next"
    folder.mkdir()
    authority = Authority(folder)
    authority.issue("localhost", file="server", rsa=True)
    authority.issue("client.localhost", common_name="operator", file="certified", rsa=True)
    for each in sorted(folder.iterdir()):
        each.rename(secured.folder / each.name)


def served_certificate(secured: Secured) -> str:
    """Return the certificate that the server shows at its binary port, in PEM."""
    return ssl.get_server_certificate(("localhost", secured.ports[2]))
