"""Certificates of servers that a browser trusts, without an authority in the machine's own store.

Chromium takes the SHA-256 of a public key as an argument and accepts a chain that has it. Every other certificate stays
an error, so a page that loads has shown one of these.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def trusting(certificates: Iterable[Path]) -> str:
    """Return the argument of Chromium that makes it trust the first certificate of each file, in PEM."""
    return "--ignore-certificate-errors-spki-list=" + ",".join(map(_fingerprint, certificates))


def _fingerprint(path: Path) -> str:
    key = x509.load_pem_x509_certificate(path.read_bytes()).public_key()
    return base64.b64encode(
        hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    ).decode()
