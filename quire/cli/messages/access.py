"""Access to a cluster: addresses, credentials and TLS, as flags and as options of a client.

Flags: pulsar-client and pulsar-perf have the same (PulsarClientTool, PerformanceBaseArguments of Pulsar). A client.conf
of Pulsar gives what neither a flag nor an environment variable does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.cli.messages.flags import flag

if TYPE_CHECKING:
    import ssl

    from quire.client.options import ClientOptions

SERVICE_URL = "pulsar://127.0.0.1:6650"
ADMIN_URL = "http://127.0.0.1:8080"
OPERATION_TIMEOUT_S = 30.0


class FlagsError(ValueError):
    """Flags contradict each other, or a file or value that they name cannot be used. The text says which."""


class UnreachableError(Exception):
    """The admin REST gave no answer."""


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """Flags that each command has."""

    service_url: str = flag(
        "", "--service-url", "-u", help=f"Address of the brokers (default: {SERVICE_URL}).", env="QUIRE_SERVICE_URL"
    )
    admin_url: str = flag(
        "", "--admin-url", "-au", help=f"Address of the admin REST (default: {ADMIN_URL}).", env="QUIRE_ADMIN_URL"
    )
    auth_plugin: str = flag(
        "", "--auth-plugin", help="token, basic or tls, or the original's class.", env="QUIRE_AUTH_PLUGIN"
    )
    auth_params: str = flag(
        "",
        "--auth-params",
        help="Its parameters, such as file:///path of a token, which ps does not show.",
        env="QUIRE_AUTH_PARAMS",
        hidden_default=True,
    )
    trust_cert_file: str = flag(
        "",
        "--trust-cert-file",
        "--tls-trust-cert-path",
        help="PEM file of the trusted authorities.",
        env="QUIRE_TLS_TRUST_CERTS",
    )
    tls_cert_file: str = flag("", "--tls-cert-file", help="PEM file of the client's certificate.", env="QUIRE_TLS_CERT")
    tls_key_file: str = flag("", "--tls-key-file", help="PEM file of its key.", env="QUIRE_TLS_KEY")
    tls_allow_insecure: bool = flag(
        False, "--tls-allow-insecure", help="Accept any certificate of a server.", env="QUIRE_TLS_ALLOW_INSECURE"
    )
    tls_hostname_verification: bool | None = flag(
        None,
        "--tls-enable-hostname-verification/--tls-disable-hostname-verification",
        help="Compare the host name with the certificate (default: yes).",
        env="QUIRE_TLS_HOSTNAME_VERIFICATION",
    )
    conf_file: str = flag("", "--conf-file", "-cf", help="A client.conf of Pulsar.", env="QUIRE_CLIENT_CONF")

    def brokers(self) -> str:
        """Return the service URL."""
        return self.service_url or self._configured("brokerServiceUrl") or SERVICE_URL

    def web(self) -> str:
        """Return the address of the admin REST, without a slash at its end."""
        return (self.admin_url or self._configured("webServiceUrl") or ADMIN_URL).rstrip("/")

    def client_options(self) -> ClientOptions:
        """Return the options of a client. Raises FlagsError."""
        from quire.client.authentication import CredentialsError, from_plugin
        from quire.client.options import ClientOptions
        from quire.world.tls_options import TlsOptions

        plugin = self.auth_plugin or self._configured("authPlugin")
        try:
            return ClientOptions(
                credentials=from_plugin(plugin, self.auth_params or self._configured("authParams")),
                operation_timeout_s=OPERATION_TIMEOUT_S,
                tls=TlsOptions(
                    certificate_file=self.tls_cert_file,
                    key_file=self.tls_key_file,
                    trust_file=self.trust_cert_file or self._configured("tlsTrustCertsFilePath"),
                    verify=not self._insecure(),
                    check_host=self._host_checked(),
                ),
            )
        except (CredentialsError, ValueError) as error:
            raise FlagsError(str(error)) from None

    def web_headers(self) -> dict[str, str]:
        """Return the headers of a request to the admin REST. Raises FlagsError."""
        from quire.client.authentication import CredentialsError

        credentials = self.client_options().credentials
        try:
            return {} if credentials is None else credentials.headers()
        except CredentialsError as error:
            raise FlagsError(str(error)) from None

    def web_tls(self) -> ssl.SSLContext | bool:
        """Return what httpx's `verify` takes. Raises FlagsError."""
        import ssl

        if not self.web().startswith("https://"):
            return True
        try:
            context = ssl.create_default_context(
                cafile=self.trust_cert_file or self._configured("tlsTrustCertsFilePath") or None
            )
            if self.tls_cert_file:
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        except OSError as error:
            raise FlagsError(f"the files of TLS cannot be used: {error}") from None
        context.check_hostname = self._host_checked() and not self._insecure()
        if self._insecure():
            context.verify_mode = ssl.CERT_NONE
        return context

    def _insecure(self) -> bool:
        return self.tls_allow_insecure or self._configured("tlsAllowInsecureConnection") == "true"

    def _host_checked(self) -> bool:
        if self.tls_hostname_verification is not None:
            return self.tls_hostname_verification
        return self._configured("tlsEnableHostnameVerification") != "false"

    def _configured(self, key: str) -> str:
        if not self.conf_file:
            return ""
        from quire.service.errors import ConfigError
        from quire.service.properties import Grammar, read_properties

        try:
            found = {each.name: each.value for each in read_properties(self.conf_file, Grammar.JAVA)}
        except ConfigError as error:
            raise FlagsError(f"--conf-file {self.conf_file}: {error}") from None
        return found.get(key, "").strip()


def full_name(topic: str) -> str:
    """Return the full name of a topic. Raises FlagsError."""
    from quire.wire.pulsar.errors import InvalidNameError
    from quire.wire.pulsar.names import TopicName

    try:
        return TopicName.parse(topic).full
    except InvalidNameError as error:
        raise FlagsError(str(error)) from None


def guarded(command: str, work: Callable[[], int]) -> int:
    """Run a command; print an error of its flags or of the cluster in one line, and return its exit code."""
    import sys

    from quire.client.errors import ClientError

    try:
        return work()
    except FlagsError as error:
        print(f"quire {command}: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        _forget_output()
        return 0
    except (ClientError, UnreachableError, OSError) as error:
        print(f"quire {command}: {error}", file=sys.stderr)
        return FAILED


FAILED = 1
"""The cluster refuses, is not reached, or stopped answering."""
USAGE = 2
"""Flags, files or input that cannot be used."""
INTERRUPTED = 130
"""SIGINT came before all was done, as the shell reports it."""


def _forget_output() -> None:
    """Prevent an error at exit: the reader of standard output has gone, and Python would write what is buffered."""
    import os
    import sys

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
