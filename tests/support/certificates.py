"""Certificates of tests: an authority, certificates that it signs, and their files."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from cryptography.hazmat.primitives import serialization

from quire.world.tls_options import TlsOptions


class Pair(NamedTuple):
    """Files of a certificate with its key, in PEM."""

    certificate: Path
    key: Path


class Authority:
    """An authority with a folder, in which the files of its certificates are."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._made = trustme.CA()
        self.trust = folder / f"{name}.pem"
        self._usual: Pair | None = None
        self._made.cert_pem.write_to_path(self.trust)

    def issue(
        self,
        *names: str,
        common_name: str | None = None,
        unit: str | None = None,
        file: str = "server",
        expired: bool = False,
        ends: datetime.datetime | None = None,
        rsa: bool = False,
    ) -> Pair:
        """Write a certificate for `names` (hosts, addresses), with `unit` as its organizational unit, and its key.

        `ends`: the end of its validity. `rsa`: the key is of this kind and in PKCS#8, as Pulsar's Java client reads
        it."""
        until = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if expired else ends
        since = datetime.datetime(2010, 1, 1, tzinfo=datetime.UTC) if expired else None
        kind = trustme.KeyType.RSA if rsa else trustme.KeyType.ECDSA
        made = self._made.issue_cert(
            *names,
            common_name=common_name,
            organization_unit_name=unit,
            not_before=since,
            not_after=until,
            key_type=kind,
        )
        pair = Pair(self._folder / f"{file}.cert.pem", self._folder / f"{file}.key.pem")
        pair.certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key = made.private_key_pem.bytes()
        pair.key.write_bytes(_pkcs8(key) if rsa else key)
        return pair

    def server(self, pair: Pair | None = None, **more: Any) -> TlsOptions:
        """Options of a server with a certificate for localhost, which trusts this authority."""
        if pair is None:
            pair = self._usual = self._usual or self.issue("localhost", "127.0.0.1", file="usual")
        return options(pair, trust=self.trust, **more)

    def client(self, pair: Pair | None = None, **more: Any) -> TlsOptions:
        """Options of a client, which trusts this authority."""
        return options(pair, trust=self.trust, **more)


def _pkcs8(pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(pem, None)
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, none)


def options(pair: Pair | None, *, trust: Path | None, **more: Any) -> TlsOptions:
    """Options with these files."""
    given: dict[str, Any] = {"trust_file": "" if trust is None else str(trust), **more}
    if pair is not None:
        given = {"certificate_file": str(pair.certificate), "key_file": str(pair.key), **given}
    return TlsOptions(**given)
