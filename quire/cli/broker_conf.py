"""A broker.conf, the original's or ours: read, and rendered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quire.cli.broker_config import BrokerConfig
from quire.cli.original_broker_conf import ALIASES, IGNORED, REFUSED
from quire.service.config import build, keys_of, parse, read_text, render
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.original_conf import assignments, refusal_of, render_tail

log = get_logger(__name__)


def load_broker_config(path: str | Path, overrides: Mapping[str, Any] | None = None) -> BrokerConfig:
    """Read a broker.conf. `overrides` are field values that win over the file. ConfigError with every problem, one a line.
    Logs the keys that have no effect, once."""
    text = read_text(path)
    ours, problems = sort_out(text, source=str(path))
    try:
        values, ignored = parse(ours, BrokerConfig, source=str(path))
    except ConfigError as error:
        raise ConfigError("\n".join([*problems, str(error)])) from error
    if problems:
        raise ConfigError("\n".join(problems))
    if ignored:
        log.info("configuration keys without effect here are ignored", file=str(path), keys=" ".join(ignored))
    return build(BrokerConfig, {**values, **(overrides or {})})


def sort_out(text: str, *, source: str) -> tuple[str, list[str]]:
    """The text with older names replaced by those of today, in its lines; and what is refused (pure)."""
    lines = text.split("\n")
    given = {name for _, name, _ in assignments(text)}
    problems: list[str] = []
    seen: set[str] = set()
    for number, name, value in assignments(text):
        remedy = refusal_of(REFUSED, name, value) if name not in seen else None
        seen.add(name)
        newer = ALIASES.get(name)
        if remedy is not None:
            problems.append(f"{source}:{number + 1}: {name}={value}: {remedy}")
        elif newer is not None:
            lines[number] = "" if newer in given else f"{newer}={value}"
    return "\n".join(lines), problems


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
    both = keys_of(BrokerConfig).keys() & IGNORED.keys()
    assert not both, f"{both} are honoured"
    tail = render_tail(ALIASES, IGNORED, REFUSED, about_ignored=_TAIL_IGNORED, about_refused=_TAIL_REFUSED)
    return render(BrokerConfig, head=_HEAD) + tail
