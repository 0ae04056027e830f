"""Options of tracing."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import conf_key
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingOptions:
    """Traced namespaces, and the collector of the spans. Raises ValueError for an invalid namespace or URL."""

    namespaces: tuple[str, ...] = conf_key(
        "quireTracingNamespaces",
        (),
        doc="Namespaces (tenant/namespace, comma-separated) whose messages are traced with OpenTelemetry, if their "
        "property traceparent says that they are sampled. Empty: no message is looked at. Needs the extra `otel`.",
    )
    endpoint: str = conf_key(
        "quireTracingEndpoint",
        "http://127.0.0.1:4318/v1/traces",
        doc="URL of a collector that takes spans by OTLP over HTTP.",
    )
    spans_per_second_max: int = conf_key(
        "quireTracingSpansPerSecond",
        200,
        minimum=1,
        doc="Spans that the broker records in a second at most; further ones are dropped and counted.",
    )

    def __post_init__(self) -> None:
        for namespace in self.namespaces:
            try:
                NamespaceName.parse(namespace)
            except InvalidNameError as error:
                raise ValueError(
                    f"quireTracingNamespaces: {namespace!a}: {error}; name them tenant/namespace"
                ) from None
        if not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(
                f"quireTracingEndpoint: {self.endpoint!a} is no URL that begins with http:// or https://; give the one "
                "of your collector, such as http://127.0.0.1:4318/v1/traces"
            )
