"""The configuration files of a local cluster's bookies, with which `quire shell -localbookie` finds them.

Source: BookKeeper's LocalBookKeeper, bin/bookkeeper.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

CONFIG_VARIABLE: Final = "LOCALBOOKIES_CONFIG_DIR"
CONFIG_FOLDER: Final = Path("data/localbookie/config")
"""Folder of the files with the default `--data-dir` of `quire localbookie`."""
ORIGINALS_CONFIG_FOLDER: Final = Path("/tmp/localbookies-config")
BASE: Final = "baseconf"
"""Name of the file that names the cluster alone."""


def conf_name(bookie_id: str) -> str:
    """Return the name of a bookie's file."""
    return f"{bookie_id}.conf"


def config_folder(data_dir: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the files of a local cluster with this data directory."""
    given = environment.get(CONFIG_VARIABLE)
    return Path(given) if given else data_dir / CONFIG_FOLDER.name


def write_confs(folder: Path, uri: str, bookies: Sequence[tuple[str, Mapping[str, object]]]) -> None:
    """Write the files of all bookies, given by id and keys, and that of the cluster; others are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {conf_name(BASE): {"metadataServiceUri": uri}} | {conf_name(name): dict(keys) for name, keys in bookies}
    for path in folder.glob("*.conf"):
        if path.name not in files:
            path.unlink()
    for name, keys in files.items():
        (folder / name).write_text("".join(f"{key}={_text(value)}\n" for key, value in keys.items()))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
