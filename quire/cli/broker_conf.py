"""A broker.conf, the original's or ours: read, and rendered."""

from __future__ import annotations

from pathlib import Path

from quire.cli.broker_config import BrokerConfig
from quire.cli.original_broker_conf import ALIASES, IGNORED, REFUSED
from quire.service.config import render
from quire.service.original_conf import load_original, render_tail


def load_broker_config(path: str | Path) -> BrokerConfig:
    """Read a broker.conf. ConfigError with every problem, one a line. Logs the keys that have no effect, once."""
    return load_original(path, BrokerConfig, ALIASES, IGNORED, REFUSED)


_HEAD = """Configuration of `quire broker`: every key with its default.
Names are Pulsar's; a broker.conf written for its brokers is read as it is. What becomes of the keys that are not here
stands at the end. A name that nobody knows is an error. The first value of a key wins."""

_TAIL_IGNORED = (
    "Keys of the original that have no effect here, with what there is instead or what is not there to be tuned. Those "
    "that a file sets are named once in the log; so are the rest of the original's."
)
_TAIL_REFUSED = "Keys of the original with which the broker does not start, if they ask for what it cannot do."


def render_conf() -> str:
    """What conf/broker.conf holds."""
    tail = render_tail(ALIASES, IGNORED, REFUSED, about_ignored=_TAIL_IGNORED, about_refused=_TAIL_REFUSED)
    return render(BrokerConfig, head=_HEAD) + tail
