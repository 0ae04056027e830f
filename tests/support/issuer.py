"""An issuer of OpenID Connect on the loopback: its discovery, and its endpoint of tokens for the credentials of clients
(OAuth 2.0, RFC 6749, 4.4). Its keys are a file, as Quire takes them.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tests.support.credentials import rsa_key, token

AUDIENCE = "urn:quire"
CLIENT = "reporter"
"""The client, whose tokens have it as their role."""
SECRET = "a secret of the client"
KEY_ID = "one"
SPARE_S = 2
"""Seconds that a token is valid longer than its answer says: a client that is asked for a newer one then gets one."""


class Issuer:
    """Answers requests in threads of its own."""

    def __init__(self, folder: Path, *, lasts_s: int = 60) -> None:
        self.asked: list[dict[str, str]] = []
        """Requests for tokens."""
        self.key_set = folder / "issuer.json"
        self.key_file = folder / "client.json"
        self._lasts_s = lasts_s
        numbers = rsa_key().public_key().public_numbers()
        key = {
            "kty": "RSA",
            "alg": "RS256",
            "use": "sig",
            "kid": KEY_ID,
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        self.key_set.write_text(json.dumps({"keys": [key]}))
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(200, {"issuer": issuer.url, "token_endpoint": f"{issuer.url}/token"})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                given = json.loads(body) if body.startswith("{") else {key: v[0] for key, v in parse_qs(body).items()}
                self.answer(*issuer.token(given))

            def answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.key_file.write_text(
            json.dumps(
                {"type": "client_credentials", "client_id": CLIENT, "client_secret": SECRET, "issuer_url": self.url}
            )
        )

    def token(self, given: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of an answer to a request for a token."""
        self.asked.append(given)
        if (given.get("client_id"), given.get("client_secret")) != (CLIENT, SECRET):
            return 401, {"error": "invalid_client"}
        now = int(time.time())
        made = token(
            CLIENT,
            rsa_key(),
            "RS256",
            iss=self.url,
            aud=given.get("audience", ""),
            iat=now,
            nbf=now,
            exp=now + self._lasts_s + SPARE_S,
            headers={"kid": KEY_ID},
        )
        return 200, {"access_token": made, "token_type": "Bearer", "expires_in": self._lasts_s}

    def conf(self) -> dict[str, object]:
        """Return the keys of a server that takes its tokens."""
        return {
            "openIDAllowedTokenIssuers": self.url,
            "quireOpenIDKeySets": f"{self.url}={self.key_set}",
            "openIDAllowedAudiences": AUDIENCE,
        }

    def parameters(self) -> dict[str, str]:
        """Return the parameters of AuthenticationOAuth2, under the names of Pulsar's Python client."""
        return {"issuer_url": self.url, "private_key": f"file://{self.key_file}", "audience": AUDIENCE}


def _number(value: int) -> str:
    return base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()


@contextmanager
def issuing(folder: Path, *, lasts_s: int = 60) -> Iterator[Issuer]:
    """Run an issuer, whose tokens last so long."""
    issuer = Issuer(folder, lasts_s=lasts_s)
    thread = threading.Thread(target=issuer.server.serve_forever)
    thread.start()
    try:
        yield issuer
    finally:
        issuer.server.shutdown()
        thread.join()
        issuer.server.server_close()
