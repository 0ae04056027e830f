"""The thin shell: requests to a broker's web port, with redirects, credentials, TLS and a deadline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urljoin, urlsplit

from quire.cli.admin.errors import CommandLineError, NoAnswerError, RequestRefusedError
from quire.cli.admin.remedies import remedy
from quire.cli.admin.verbs import ABSENT, OCTETS_TYPE, Message, Request

if TYPE_CHECKING:
    import ssl

    from quire.cli.admin.exchange import AdminAnswer, Exchange

DEFAULT_URL: Final = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT_S: Final = 60.0
REDIRECTS_MAX: Final = 10
_MESSAGE_HEADER: Final = "x-pulsar-"
_PASSING: Final = frozenset((429, 500, 502, 503, 504))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A cluster, and how to reach it. Files with credentials are read when the connection is made."""

    url: str = DEFAULT_URL
    plugin: str = ""
    """token, basic or tls, or the original's class; empty: no credentials."""
    parameters: str = ""
    trust_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    insecure: bool = False
    """True: the server's certificate is not verified."""
    verify_host: bool = True
    timeout_s: float = DEFAULT_TIMEOUT_S
    context: str = ""
    """Name of the context that this comes from; empty: none."""


class RequestSender(Protocol):
    """Anything that answers requests."""

    def __enter__(self) -> RequestSender: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def send(self, request: Request) -> Any:
        """Return the answer: JSON, a text, a Message, bytes, or None. Raises AdminCommandError."""


class AdminConnection:
    """Connection to a cluster. It is made by the first request: a dry run may need none."""

    def __init__(self, target: Target, exchange: Exchange | None = None) -> None:
        """`exchange`: None for the network."""
        self._target = target
        self._exchange = exchange
        self._made: tuple[Exchange, Mapping[str, str]] | None = None

    def __enter__(self) -> AdminConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made is not None:
            self._made[0].close()

    def _ready(self) -> tuple[Exchange, Mapping[str, str]]:
        """Return the exchange, and the headers with credentials. Raises CommandLineError: they cannot be used."""
        if self._made is None:
            from quire.cli.admin.exchange import HttpExchange

            target = self._target
            if urlsplit(target.url).scheme not in ("http", "https"):
                raise CommandLineError(
                    f"--url {target.url!r} is no web address: give http://host:8080 or https://host:8443"
                )
            headers = _credentials(target)
            context = _tls(target)
            self._made = self._exchange or HttpExchange(target.timeout_s, context), headers
        return self._made

    def send(self, request: Request) -> Any:
        """Send a request, also to the broker that another one names."""
        exchange, credentials = self._ready()
        from quire.cli.admin.exchange import ExchangeError

        url = self._target.url.rstrip("/") + request.path
        headers = {"Accept": "application/json, text/plain, application/octet-stream", **credentials}
        body = None
        if request.body is not ABSENT:
            body = request.body if isinstance(request.body, bytes) else json.dumps(request.body).encode()
            headers["Content-Type"] = request.content_type
        for _ in range(REDIRECTS_MAX):
            try:
                answer = exchange.request(request.method, url, headers, body)
            except ExchangeError as error:
                raise NoAnswerError(_silence(url, error, self._target)) from None
            if answer.status not in (301, 302, 303, 307, 308):
                return _answer(answer, request, self._target)
            url = _next(url, answer.headers.get("location", ""))
        raise NoAnswerError(f"{request.method} {request.path} was redirected {REDIRECTS_MAX} times: check the brokers")


def _credentials(target: Target) -> Mapping[str, str]:
    from quire.client.authentication import CredentialsError, from_plugin

    try:
        found = from_plugin(target.plugin, target.parameters)
        return {} if found is None else found.headers()
    except CredentialsError as error:
        raise CommandLineError(f"credentials: {error}; give --auth-plugin token --auth-params file:///path") from None


def _tls(target: Target) -> ssl.SSLContext | None:
    if urlsplit(target.url).scheme == "http" and not (target.trust_file or target.certificate_file):
        return None  # (loading the system's authorities takes 70 ms, and a redirect never leads from http to https)
    from quire.world.real_tls import TlsFiles
    from quire.world.tls_options import TlsOptions

    try:
        options = TlsOptions(
            trust_file=target.trust_file,
            certificate_file=target.certificate_file,
            key_file=target.key_file,
            verify=not target.insecure,
            check_host=target.verify_host and not target.insecure,
        )
        return TlsFiles(options, server_side=False).context
    except (OSError, ValueError) as error:
        raise CommandLineError(f"TLS: {error}") from None


def _next(url: str, location: str) -> str:
    """Return where a redirect leads. Raises NoAnswerError for one that would carry credentials over a plain
    connection."""
    if not location:
        raise NoAnswerError(f"{url} redirects to nowhere: check the addresses that the brokers advertise")
    found = urljoin(url, location)
    if urlsplit(found).scheme != urlsplit(url).scheme:
        raise NoAnswerError(
            f"{url} redirects to {found}, of another scheme: give --url the address of the other port of the brokers"
        )
    return found


def _silence(url: str, error: Exception, target: Target) -> str:
    place = f"{urlsplit(url).scheme}://{urlsplit(url).netloc.rpartition('@')[2]}"  # (without a password)
    named = f"context {target.context}" if target.context else "--url"
    return (
        f"no answer from {place}: {error or type(error).__name__}. Check that a broker serves there, and the address "
        f"of {named}"
    )


def _answer(answer: AdminAnswer, request: Request, target: Target) -> Any:
    if not 200 <= answer.status < 300:
        reason = _reason(answer)
        text = remedy(answer.status, request, anonymous=not target.plugin)
        raise RequestRefusedError(
            f"{answer.status}: {reason.rstrip('.')}. {text}",
            status=answer.status,
            passing=answer.status in _PASSING,
        )
    told = {name: value for name, value in answer.headers.items() if name.startswith(_MESSAGE_HEADER)}
    if "x-pulsar-message-id" in told:
        return Message(told, answer.body)
    if answer.headers.get("content-type", "").startswith(OCTETS_TYPE):
        return answer.body
    if not answer.body:
        return None
    try:
        return json.loads(answer.body)
    except ValueError:
        return answer.text


def _reason(answer: AdminAnswer) -> str:
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    reason = found.get("reason") if isinstance(found, dict) else None
    return str(reason) if reason else (answer.text.strip()[:200] if found is None else "") or answer.reason
