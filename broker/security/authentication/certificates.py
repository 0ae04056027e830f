"""Provider of roles by client certificates, which TLS has verified (pure). Source: Pulsar's AuthenticationProviderTls.

The role is the common name of the subject. A certificate without one, as many issuers make them today, has the role of
its first alternative name, a DNS name before a URI; the original refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID

from broker.security.authentication.credentials import DATA_BYTES_MAX, Identity, Presented
from broker.security.authentication.errors import AuthenticationError

METHOD = "tls"


@dataclass(frozen=True, slots=True)
class CertificateProvider:
    """Roles of certificates. What CONNECT has as data does not count."""

    method: str = METHOD
    name: str = "AuthenticationProviderTls"
    is_lasting: bool = False

    def identify(self, presented: Presented, now_ms: int) -> Identity:
        if presented.certificate is None:
            raise AuthenticationError("the connection has no client certificate", "INVALID_CERTS")
        role = role_of(presented.certificate)
        if not role.strip():
            raise AuthenticationError("the client certificate names no role", "INVALID_CN")
        return Identity(role)

    def of_headers(self, headers: Mapping[str, str], certificate: bytes | None) -> Presented:
        return Presented(b"", certificate)


def role_of(certificate: bytes) -> str:
    """Return the role that a certificate in DER names; empty: none. Raises AuthenticationError."""
    try:
        if len(certificate) > DATA_BYTES_MAX:
            raise ValueError
        found = x509.load_der_x509_certificate(certificate)
        for attribute in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME):
            if attribute.value:
                return str(attribute.value)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return next(
            iter(
                (
                    *names.get_values_for_type(x509.DNSName),
                    *names.get_values_for_type(x509.UniformResourceIdentifier),
                )
            ),
            "",
        )
    except x509.ExtensionNotFound:
        return ""
    except (ValueError, TypeError):
        raise AuthenticationError("the client certificate is malformed", "INVALID_CERTS") from None
