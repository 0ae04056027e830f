"""The URLs of a broker (pure).

Its first URL, `broker_url` and `web_url`, is that of its port without TLS, or of its port with TLS if there is no
other; it names the broker where brokers are compared. `broker_url_tls` and `web_url_tls` are those of its ports with
TLS, or empty.
"""

from __future__ import annotations

from typing import Final, Protocol

PULSAR_TLS: Final = "pulsar+ssl://"
HTTPS: Final = "https://"


class Urls(Protocol):
    """URLs of one broker."""

    @property
    def broker_url(self) -> str: ...

    @property
    def web_url(self) -> str: ...

    @property
    def broker_url_tls(self) -> str: ...

    @property
    def web_url_tls(self) -> str: ...


def is_tls(url: str) -> bool:
    return url.startswith((PULSAR_TLS, HTTPS))


def plain(url: str) -> str:
    """Return a first URL if it is one without TLS; else "".

    >>> plain("pulsar://a:6650"), plain("pulsar+ssl://a:6651")
    ('pulsar://a:6650', '')
    """
    return "" if is_tls(url) else url


def broker_url(urls: Urls, *, tls: bool) -> str:
    """Return the URL for a client that uses TLS, or does not; the first one if there is no other."""
    return (tls and urls.broker_url_tls) or urls.broker_url


def web_url(urls: Urls, *, tls: bool) -> str:
    """Return the web URL for a client that uses TLS, or does not; the first one if there is no other."""
    return (tls and urls.web_url_tls) or urls.web_url


def joined(urls: Urls) -> str:
    """Return the URLs for clients, with commas; see `split`."""
    return ",".join(dict.fromkeys(filter(None, (urls.broker_url, urls.broker_url_tls))))


def split(urls: str) -> tuple[str, str]:
    """Return the URLs without TLS and with it, each "" if it is not there.

    >>> split("pulsar://a:6650,pulsar+ssl://a:6651"), split("pulsar+ssl://a:6651")
    (('pulsar://a:6650', 'pulsar+ssl://a:6651'), ('', 'pulsar+ssl://a:6651'))
    """
    found = urls.split(",")
    return next((url for url in found if not is_tls(url)), ""), next((url for url in found if is_tls(url)), "")
