"""TLS contexts made of files, and made again when the files change. Blocking: call it in a job of `Offload`."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from quire.world.tls_options import PEM, TlsOptions

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
FILE_BYTES_MAX = 16 << 20
"""Bytes of one file of certificates or keys."""


class TlsFilesError(OSError):
    """Files of TLS cannot be read, or do not belong together. The text names the file. Correct it and retry."""


class _Material(NamedTuple):
    """Contents of the files; passwords included, so never shown."""

    certificate: bytes
    key: bytes
    key_password: str
    trust: bytes
    trust_password: str

    def __repr__(self) -> str:
        return "_Material()"


class TlsFiles:
    """Current context of one side, made of its files."""

    def __init__(self, options: TlsOptions, *, server_side: bool, protocols: Sequence[str] = ()) -> None:
        """`protocols`: names offered or accepted by ALPN.

        ValueError: options that no context can have. TlsFilesError.
        """
        if server_side and not options.identity:
            raise ValueError("a server needs a TLS certificate and its key")
        self.options = options
        self._server_side = server_side
        self._protocols = list(protocols)
        self._material = _read(options)
        self.context = self._make(self._material)
        """Context for new connections."""
        self.expires_at_s = _expiry(options, self._material)
        """End of the own certificate's validity, in seconds since 1970; 0: there is no own certificate."""

    def refresh(self) -> bool:
        """Read the files again; return whether they changed, and `context` is a new one.

        TlsFilesError: `context` stays as it was, also when the files stay as they are now.
        """
        material = _read(self.options)
        if material == self._material:
            return False
        context = self._make(material)
        self._material, self.context = material, context
        self.expires_at_s = _expiry(self.options, material)
        return True

    def _make(self, material: _Material) -> ssl.SSLContext:
        options = self.options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self._server_side else ssl.PROTOCOL_TLS_CLIENT)
        versions = [ssl.TLSVersion[each.replace(".", "_")] for each in options.allowed_versions]
        context.minimum_version, context.maximum_version = versions[0], versions[-1]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        if self._server_side:
            # A session that is resumed shows no certificate again: each connection is verified anew.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        if options.old_ciphers:
            try:
                context.set_ciphers(":".join(options.old_ciphers))
            except ssl.SSLError as error:
                raise ValueError(f"cipher suites {', '.join(options.ciphers)}: none is known") from error
            known = {each["name"] for each in context.get_ciphers()}
            if missing := [each for each in options.old_ciphers if each not in known]:
                raise ValueError(f"cipher suites {', '.join(missing)} are not known; correct or remove them")
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        self._set_trust(context, material)
        if options.identity:
            _set_identity(context, options, material)
        return context

    def _set_trust(self, context: ssl.SSLContext, material: _Material) -> None:
        options = self.options
        context.check_hostname = False
        if not options.verify or (self._server_side and not options.trust_file):
            context.verify_mode = ssl.CERT_NONE
            return
        optional = self._server_side and not options.require_certificate
        context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
        context.check_hostname = not self._server_side and options.check_host
        if not options.trust_file:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            return
        if options.trust_type == PEM:
            found = _CERTIFICATE.findall(material.trust)
        else:
            _, _, found = _unpack(material.trust, material.trust_password, options.trust_file)
        if not found:
            raise TlsFilesError(f"{options.trust_file}: there is no certificate in it")
        try:
            context.load_verify_locations(cadata=b"\n".join(found).decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise TlsFilesError(f"{options.trust_file}: not certificates in PEM: {_words(error)}") from error


def _set_identity(context: ssl.SSLContext, options: TlsOptions, material: _Material) -> None:
    """Load certificate and key. OpenSSL reads them by name only, so they are given to it as files in memory: what was
    read and compared is what counts, and a key that was unpacked is never on a disk."""
    certificate, key, password = material.certificate, material.key, material.key_password
    names = f"{options.certificate_file} and {options.key_file}"
    if options.key_type != PEM:
        names = options.key_file
        key, certificate, others = _unpack(material.key, password, options.key_file)
        if not key or not certificate:
            raise TlsFilesError(f"{options.key_file}: there is no key with its certificate in it")
        certificate = b"\n".join((certificate, *others))
        password = ""

    def ask() -> str:
        if not password:
            raise TlsFilesError(f"{options.key_file}: the key is encrypted, and there is no password for it")
        return password

    with _in_memory(certificate) as chain, _in_memory(key) as secret:
        try:
            context.load_cert_chain(chain, secret, ask)
        except ssl.SSLError as error:
            raise TlsFilesError(f"{names}: not a certificate with its key in PEM: {_words(error)}") from error


def _expiry(options: TlsOptions, material: _Material) -> float:
    """Return when the own certificate expires, in seconds since 1970; 0: there is none."""
    if not options.identity:
        return 0.0
    from cryptography import x509  # imported here: a client without a certificate does not need it

    if options.key_type == PEM:
        found = _CERTIFICATE.search(material.certificate)
        own = b"" if found is None else found.group()
    else:
        _, own, _ = _unpack(material.key, material.key_password, options.key_file)
    return x509.load_pem_x509_certificate(own).not_valid_after_utc.timestamp()


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield the name of a file in memory."""
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _unpack(content: bytes, password: str, name: str) -> tuple[bytes, bytes, list[bytes]]:
    """Return key, certificate and other certificates of a PKCS#12 file, in PEM; empty where there is none."""
    # Imported here, because only these files need it.
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    try:
        found = pkcs12.load_pkcs12(content, password.encode() if password else None)
    except ValueError as error:
        raise TlsFilesError(f"{name}: not a PKCS#12 store, or another password: {error}") from error
    key = b"" if found.key is None else found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    own = b"" if found.cert is None else found.cert.certificate.public_bytes(Encoding.PEM)
    return key, own, [each.certificate.public_bytes(Encoding.PEM) for each in found.additional_certs]


def _read(options: TlsOptions) -> _Material:
    return _Material(
        certificate=_content(options.certificate_file),
        key=_content(options.key_file),
        key_password=_password(options.key_password, options.key_password_file),
        trust=_content(options.trust_file),
        trust_password=_password(options.trust_password, options.trust_password_file),
    )


def _content(name: str) -> bytes:
    if not name:
        return b""
    try:
        path = Path(name)
        if path.stat().st_size > FILE_BYTES_MAX:
            raise TlsFilesError(f"{name}: above {FILE_BYTES_MAX} bytes, so it is no file of certificates or keys")
        return path.read_bytes()
    except TlsFilesError:
        raise
    except OSError as error:
        raise TlsFilesError(f"{name}: cannot be read: {error.strerror or error}") from error


def _password(password: str, name: str) -> str:
    if not name:
        return password
    try:
        return _content(name).decode().split("\n", 1)[0].rstrip("\r")
    except UnicodeDecodeError as error:
        raise TlsFilesError(f"{name}: not text") from error


def _words(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error)
