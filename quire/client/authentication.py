"""Credentials of a client.

    token(...)          a token, as it is
    token_file(path)    a token in a file, read again for each connection and for each refresh
    token_from(get)     a token that a function returns, called as often
    basic(user, password)
    basic_file(path)    `user:password` in a file
    certificate()       the client certificate of the TLS options

    options = ClientOptions(credentials=token_file("/etc/quire/token"))

They are never in a repr, an error or the log.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

DATA_BYTES_MAX = 64 << 10
"""Maximum bytes of credentials. Brokers refuse longer ones."""


class CredentialsError(ValueError):
    """Credentials cannot be read or are malformed. The text has no part of them."""


class Credentials:
    """Way to authenticate. `method` is its name in the protocol. Equal if they come from the same source."""

    __slots__ = ("_get", "_source", "method")

    def __init__(self, method: str, source: object, get: Callable[[], bytes]) -> None:
        """Take the name, the source, and a function that returns the credentials.

        The function may block, and raise CredentialsError."""
        self.method = method
        self._source = source
        self._get = get

    def __repr__(self) -> str:
        return f"Credentials({self.method!r}, ...)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Credentials):
            return NotImplemented
        return (self.method, self._source) == (other.method, other._source)

    def __hash__(self) -> int:
        return hash((self.method, self._source))

    def data(self) -> bytes:
        """Return what CONNECT carries. May block. Raises CredentialsError."""
        try:
            data = self._get()
        except CredentialsError:
            raise
        except Exception as error:
            # What a caller's function raises may name the credentials.
            raise CredentialsError(f"credentials cannot be had ({type(error).__name__})") from None
        if len(data) > DATA_BYTES_MAX:
            raise CredentialsError(f"credentials have more than {DATA_BYTES_MAX} bytes")
        return data

    def headers(self) -> dict[str, str]:
        """Return the headers of a request to the web port. May block. Raises CredentialsError."""
        headers = {"X-Pulsar-Auth-Method-Name": self.method}
        data = self.data()
        if self.method == "token":
            headers["Authorization"] = f"Bearer {data.decode('ascii', 'replace')}"
        elif self.method == "basic":
            headers["Authorization"] = f"Basic {base64.b64encode(data).decode()}"
        return headers


def token(value: str) -> Credentials:
    """Return credentials of a token. Raises CredentialsError if it is none."""
    data = _checked(value.encode("utf-8", "replace"))
    return Credentials("token", data, lambda: data)


def token_file(path: str | Path) -> Credentials:
    """Return credentials of the token in a file. Its data raises CredentialsError if it cannot be read."""
    file = Path(path)
    return Credentials("token", file, lambda: _checked(_read(file)))


def token_from(get: Callable[[], str]) -> Credentials:
    """Return credentials of the tokens that a function returns. It is called in a thread."""
    return Credentials("token", get, lambda: _checked(get().encode("utf-8", "replace")))


def basic(user: str, password: str) -> Credentials:
    """Return credentials of a user with a password. Raises CredentialsError: no broker could read them."""
    data = _user(f"{user}:{password}".encode())
    return Credentials("basic", data, lambda: data)


def basic_file(path: str | Path) -> Credentials:
    """Return credentials of the `user:password` in a file, read again for each connection."""
    file = Path(path)
    return Credentials("basic", file, lambda: _user(_read(file).strip()))


def certificate() -> Credentials:
    """Return the credentials of a client whose certificate is its credential: it needs pulsar+ssl://."""
    return Credentials("tls", "", bytes)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(DATA_BYTES_MAX + 1)
    except OSError as error:
        raise CredentialsError(f"{file} cannot be read: {error.strerror}") from None


def _user(data: bytes) -> bytes:
    user, _, password = data.partition(b":")
    if not user or not password or b":" in password:
        raise CredentialsError("user and password must not be empty or contain a colon")
    return data


def _checked(data: bytes) -> bytes:
    data = data.strip()
    if not data or not data.isascii() or any(byte <= 32 for byte in data):
        raise CredentialsError("a token is one word of ASCII characters")
    return data


_PACKAGE = "org.apache.pulsar.client.impl.auth."
PLUGINS = tuple(f"{_PACKAGE}{name}" for name in ("AuthenticationToken", "AuthenticationBasic", "AuthenticationTls"))
"""Classes of the original whose parameters are understood. Their short names are the methods."""


def from_plugin(plugin: str, parameters: str) -> Credentials | None:
    """Return the credentials that a class of the original takes from its parameters; None: it authenticates nothing.

    Raises CredentialsError. Sources: AuthenticationToken, AuthenticationBasic of Pulsar's client."""
    name = plugin.removeprefix(_PACKAGE)
    if name in ("", "AuthenticationDisabled"):
        if parameters.strip():
            raise CredentialsError("there are parameters, and no plugin that takes them")
        return None
    if name in ("AuthenticationToken", "token"):
        return _token_of(parameters.strip())
    if name in ("AuthenticationBasic", "basic"):
        values = _json_of(parameters)
        return basic(values.get("userId") or values.get("username", ""), values.get("password", ""))
    if name in ("AuthenticationTls", "tls"):
        if parameters.strip():
            raise CredentialsError("AuthenticationTls takes no parameters; name its files in the keys of TLS")
        return certificate()
    raise CredentialsError(f"there is no {plugin}, only {', '.join(PLUGINS)}")


def _token_of(parameters: str) -> Credentials:
    if parameters.startswith("token:"):
        return token(parameters.removeprefix("token:"))
    if parameters.startswith("file:"):
        return token_file(unquote(urlsplit(parameters).path))
    if parameters.startswith("{"):
        return token(_json_of(parameters).get("token", ""))
    return token(parameters)


def _json_of(parameters: str) -> dict[str, str]:
    try:
        values = json.loads(parameters)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in values.values()):
        raise CredentialsError("the parameters must be a JSON object with texts")
    return values
