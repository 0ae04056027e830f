"""Read a configuration of Python's `logging`: JSON or TOML (`dictConfig`), or ini (`fileConfig`).

BookKeeper's scripts give log4j's file in the same variable, so that one is recognised by its content, and refused with
the remedy. Blocking; called before a server starts.

A configuration of `logging` names classes, and arguments in an ini file are evaluated: whoever can write it runs code
as the server's user, as with log4j.
"""

from __future__ import annotations

import configparser
import json
import logging
import logging.config
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from quire.service.errors import ConfigError

VARIABLE: Final = "BOOKIE_LOG_CONF"
SIZE_MAX: Final = 1 << 20
REMEDY: Final = (
    f"Unset {VARIABLE}, or name a file for Python's logging: JSON or TOML for dictConfig, or ini for fileConfig "
    '(docs/operating.md, "The log in files")'
)
_LOG4J_KEYS: Final = re.compile(
    r"^\s*(log4j\.|log4j2\.|rootLogger(\.[\w.]+)?\s*=|appenders?[.=\s]|appender\.|status\s*=)", re.M
)
_LOG4J_XML: Final = re.compile(r"<\s*(log4j:configuration|Configuration)\b", re.I)
_LOG4J_YAML: Final = re.compile(r"^\s*Configuration\s*:", re.M)


def apply(path: Path) -> Mapping[str, str]:
    """Configure Python's `logging` by a file; return the levels that it sets, by logger ("" is the root).

    Raises ConfigError with the remedy.
    """
    text = _read(path)
    kind = kind_of(path.suffix.lower(), text)
    if kind == "log4j":
        raise ConfigError(
            f"{VARIABLE}={path} is a log4j configuration, for BookKeeper's server in Java, and Quire does not read "
            f"it. {REMEDY}"
        )
    try:
        if kind == "ini":
            names = _apply_ini(text)
        else:
            values = json.loads(text) if kind == "json" else tomllib.loads(text)
            if not isinstance(values, dict):
                raise ValueError("a JSON object is needed")
            names = _apply_dict(values)
    except ConfigError:
        raise
    except Exception as error:  # classes that the file names are made here, and may raise anything
        cause = error.__cause__ or error.__context__
        why = f"{error or type(error).__name__}" + (f": {cause}" if cause is not None else "")
        raise ConfigError(
            f"{VARIABLE}={path} is no configuration of Python's logging ({kind}): {why}. {REMEDY}"
        ) from error
    return {name: _level_name(logging.getLogger(name or None).level) for name in names}


def kind_of(suffix: str, text: str) -> str:
    """Return json, toml, ini or log4j.

    >>> kind_of(".properties", "log4j.rootLogger=INFO")
    'log4j'
    """
    begin = text.lstrip()
    if begin.startswith("<") or _LOG4J_XML.search(begin):
        return "log4j"
    if suffix == ".json" or begin.startswith("{"):
        return "json"
    if suffix == ".toml":
        return "toml"
    if "[loggers]" in text:
        return "ini"
    if _LOG4J_KEYS.search(text) or _LOG4J_YAML.search(text):
        return "log4j"
    return "ini" if suffix in (".ini", ".cfg", ".conf", ".properties") else "toml"


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_MAX + 1)
        if len(content) > SIZE_MAX:
            raise ConfigError(f"{VARIABLE}={path} is larger than {SIZE_MAX} bytes. {REMEDY}")
        return content.decode()
    except OSError as error:
        raise ConfigError(f"{VARIABLE}={path} cannot be read: {error.strerror or error}. {REMEDY}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{VARIABLE}={path} is no text in UTF-8. {REMEDY}") from error


def _apply_dict(values: dict[str, Any]) -> list[str]:
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **values})
    loggers = values.get("loggers", {})
    names = [name for name, each in loggers.items() if "level" in each]
    return names + ([""] if "level" in values.get("root", {}) else [])


def _apply_ini(text: str) -> list[str]:
    parser = configparser.ConfigParser()
    parser.read_string(text)
    logging.config.fileConfig(parser, disable_existing_loggers=False)
    names = []
    for key in parser.get("loggers", "keys", fallback="root").split(","):
        section = f"logger_{key.strip()}"
        if parser.has_option(section, "level"):
            names.append("" if key.strip() == "root" else parser.get(section, "qualname"))
    return names


def _level_name(value: int) -> str:
    """Return the level of Quire's log for a number of Python's: the least that is not below it."""
    for name, number in (("debug", 10), ("info", 20), ("warning", 30), ("error", 40)):
        if value <= number:
            return name
    return "critical"
