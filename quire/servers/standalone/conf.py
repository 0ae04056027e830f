"""A standalone.conf, the original's or ours: read, and rendered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from quire.servers.standalone.config import StandaloneConfig
from quire.service.config import build, keys_of, render
from quire.service.original_conf import load_original, render_tail
from quire.service.unsupported import STANDALONE_RULES


def load_standalone_config(path: str | Path | None, overrides: Mapping[str, Any]) -> StandaloneConfig:
    """Read a standalone.conf; the defaults without one. `overrides` are field values of the command line. ConfigError with every
    problem, one a line. Logs the keys that have no effect, once."""
    if path is None:
        return build(StandaloneConfig, overrides)
    return load_original(path, StandaloneConfig, STANDALONE_RULES, overrides=overrides)


_HEAD: Final = """Configuration of `quire standalone`: every key with its default.
Names are Pulsar's and BookKeeper's; a standalone.conf written for Pulsar is read as it is. What becomes of the keys that are
not here stands at the end. A name that no version of them has is an error. The first value of a key wins."""


def render_conf() -> str:
    """What conf/standalone.conf holds."""
    return render(StandaloneConfig, head=_HEAD) + render_tail(STANDALONE_RULES, fields=keys_of(StandaloneConfig))
