"""A broker.conf, the original's or ours: read, and rendered."""

from __future__ import annotations

from pathlib import Path

from quire.servers.broker.config import BrokerConfig
from quire.service.config import keys_of, render
from quire.service.original_conf import load_original, render_tail
from quire.service.unsupported import BROKER_RULES


def load_broker_config(path: str | Path) -> BrokerConfig:
    """Read a broker.conf. ConfigError with every problem, one a line. Logs the keys that have no effect, once."""
    return load_original(path, BrokerConfig, BROKER_RULES)


_HEAD = """Configuration of `quire broker`: every key with its default.
Names are Pulsar's; a broker.conf written for its brokers is read as it is. What becomes of the keys that are not here
stands at the end. A name that no version of it has is an error. The first value of a key wins."""


def render_conf() -> str:
    """What conf/broker.conf holds."""
    return render(BrokerConfig, head=_HEAD) + render_tail(BROKER_RULES, fields=keys_of(BrokerConfig))
