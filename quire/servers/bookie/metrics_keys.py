"""Keys of a bookie's metrics: which are served, and where.

Source: BookKeeper's ServerConfiguration, MetricsService and PrometheusMetricsProvider, which serves metrics on a port
of its own if there is no HTTP server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quire.service.config import SECONDS, conf_key
from quire.service.measuring.summaries import WINDOW_S

_PROMETHEUS: Final = "PrometheusMetricsProvider"
_NONE: Final = "NullStatsProvider"


@dataclass(frozen=True, kw_only=True)
class MetricsKeys:
    """Metrics of a bookie. Raises ValueError if a class is named that cannot be loaded."""

    provider: str = conf_key(
        "statsProviderClass",
        "",
        doc="org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider: metrics are served at /metrics of "
        "httpServerPort or, without httpServerEnabled, of prometheusStatsHttpPort. Empty: of httpServerPort alone. "
        "org.apache.bookkeeper.stats.NullStatsProvider: nowhere.",
    )
    are_enabled: bool = conf_key("enableStatistics", True, doc="false: no metrics are served.")
    own_port_enabled: bool = conf_key(
        "prometheusStatsHttpEnable", True, doc="false: prometheusStatsHttpPort is not listened on."
    )
    own_host: str = conf_key("prometheusStatsHttpAddress", "0.0.0.0", doc="Address of prometheusStatsHttpPort.")
    own_port: int = conf_key(
        "prometheusStatsHttpPort",
        8000,
        minimum=0,
        maximum=65535,
        doc="Port of the metrics alone; see statsProviderClass. 0 takes a free one, with allowEphemeralPorts.",
    )
    window_s: int = conf_key(
        "prometheusStatsLatencyRolloverSeconds",
        int(WINDOW_S),
        unit=SECONDS,
        minimum=1,
        maximum=86_400,
        doc="Time over which the quantiles of latencies are taken.",
    )
    sanity: bool = conf_key(
        "sanityCheckMetricsEnabled",
        False,
        doc="true: the bookie writes and reads an entry of its own every minute, and bookie_SERVER_SANITY says whether "
        "that worked.",
    )

    def __post_init__(self) -> None:
        name = self.provider.rpartition(".")[2]
        if name not in ("", _PROMETHEUS, _NONE):
            raise ValueError(
                f"statsProviderClass={self.provider}: metrics are served in Prometheus' text; name "
                f"org.apache.bookkeeper.stats.prometheus.{_PROMETHEUS}, or leave it empty"
            )

    @property
    def served(self) -> bool:
        """Return whether there are metrics at all."""
        return self.are_enabled and self.provider.rpartition(".")[2] != _NONE

    @property
    def has_own_port(self) -> bool:
        """Return whether they have a port of their own, if there is no HTTP server."""
        return self.served and self.own_port_enabled and self.provider != ""
