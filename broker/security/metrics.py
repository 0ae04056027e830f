"""Metrics of authentication, under Pulsar's names. Source: Pulsar's AuthenticationMetrics."""

from __future__ import annotations

from broker.security.authentication.authentication import Authentication
from quire.service.metrics import Metrics, Samples


def register_authentication(metrics: Metrics, authentication: Authentication) -> None:
    """Add the families of authentication."""

    def successes() -> Samples:
        yield from authentication.successes.items()

    def failures() -> Samples:
        yield from authentication.failures.items()

    labels = ("provider_name", "auth_method")
    metrics.family("counter", "pulsar_authentication_success_total", "Credentials that were right", labels, successes)
    metrics.family(
        "counter",
        "pulsar_authentication_failures_total",
        "Credentials that were refused",
        (*labels, "reason"),
        failures,
    )
    metrics.counter(
        "quire_logins_not_checked",
        "Credentials refused unchecked: wrong a moment ago, or one of too many",
        lambda: authentication.logins.unchecked,
    )
    metrics.counter("pulsar_expired_token_total", "Of them, tokens that had expired", lambda: authentication.expired)
