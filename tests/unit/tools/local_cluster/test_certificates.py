"""Certificates that a local cluster makes for itself."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest

from tools.local_cluster.certificates import Authority, Issued

NOW = datetime.datetime.now(datetime.UTC)
STRICT = ssl.VERIFY_X509_STRICT
"""Rules of RFC 5280, which Python 3.13 checks by default."""


def shaken(server: Issued, client: Issued, authority: Authority, folder: Path, host: str = "127.0.0.1") -> None:
    """Handshake of a server with a client, each of which requires the other's certificate. ssl.SSLError."""

    def context(purpose: ssl.Purpose, own: Issued, name: str) -> ssl.SSLContext:
        store = folder / name
        store.write_bytes(own.store)
        made = ssl.create_default_context(purpose, cadata=authority.issued.certificate.decode())
        made.load_cert_chain(store)
        made.verify_mode = ssl.CERT_REQUIRED
        made.verify_flags |= STRICT
        return made

    near, far = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        context(ssl.Purpose.SERVER_AUTH, client, "client").wrap_bio(near, far, server_hostname=host),
        context(ssl.Purpose.CLIENT_AUTH, server, "server").wrap_bio(far, near, server_side=True),
    ]
    for side in (*sides, *sides):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_each_may_be_client_and_server_of_the_others(tmp_path: Path, host: str) -> None:
    authority = Authority.make("an authority", NOW)
    shaken(authority.issue("a", NOW), authority.issue("b", NOW), authority, tmp_path, host)


def test_an_authority_is_read_again_and_goes_on_signing(tmp_path: Path) -> None:
    authority = Authority.make("an authority", NOW)
    again = Authority.read(authority.issued)
    shaken(authority.issue("a", NOW), again.issue("b", NOW), authority, tmp_path)


def test_expired_ones_other_names_and_other_authorities_are_not_trusted(tmp_path: Path) -> None:
    authority, other = Authority.make("an authority", NOW), Authority.make("an authority", NOW)
    own = authority.issue("a", NOW)
    for server, client, host, reason in (
        (authority.issue("b", NOW, expired=True), own, "127.0.0.1", "expired"),
        (own, authority.issue("b", NOW, expired=True), "127.0.0.1", "expired"),
        (own, own, "example.org", "[Hh]ostname mismatch"),
        (other.issue("b", NOW), own, "127.0.0.1", "verify failed"),
        (own, other.issue("b", NOW), "127.0.0.1", "verify failed"),
    ):
        with pytest.raises(ssl.SSLCertVerificationError, match=reason):
            shaken(server, client, authority, tmp_path, host)


def test_keys_are_not_shown() -> None:
    authority = Authority.make("an authority", NOW)
    issued = authority.issue("a", NOW)
    for line in (issued.key + authority.issued.key).decode().splitlines():
        if "PRIVATE" not in line:
            assert line not in f"{issued!r} {authority!r} {authority.issued!r}"
