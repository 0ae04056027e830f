#!/usr/bin/env python3
"""Make tests/golden/configuration/bookkeeper.txt: every key that the configuration classes of a bookie declare.

    scripts/bookie_keys.py     needs mvn and javap

The jars come from Maven, and the names from the constants of their classes (javap). ClientConfiguration is left out: a
bookie reads none of its keys itself, and what auto recovery reads of them has rules of its own. docs/bookie-keys.md has
the verdict on each name (python -m tests.support.bookie_keys --write).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from original_keys import javap

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "golden" / "configuration" / "bookkeeper.txt"

VERSIONS = ("4.17.3", "4.18.0")
CLASSES = {
    "AbstractConfiguration": "org/apache/bookkeeper/conf/AbstractConfiguration",
    "ServerConfiguration": "org/apache/bookkeeper/conf/ServerConfiguration",
    "DbLedgerStorage": "org/apache/bookkeeper/bookie/storage/ldb/DbLedgerStorage",
    "SingleDirectoryDbLedgerStorage": "org/apache/bookkeeper/bookie/storage/ldb/SingleDirectoryDbLedgerStorage",
    "KeyValueStorageRocksDB": "org/apache/bookkeeper/bookie/storage/ldb/KeyValueStorageRocksDB",
    "PrometheusMetricsProvider": "org/apache/bookkeeper/stats/prometheus/PrometheusMetricsProvider",
}
ARTIFACTS = (
    ("org.apache.bookkeeper", "bookkeeper-server"),
    ("org.apache.bookkeeper.stats", "prometheus-metrics-provider"),
)
NO_KEYS = frozenset(("available", "org.apache.bookkeeper.conf.readsystemproperties", "locations", "default", "ledgers"))
"""Constants that name something else: a node of ZooKeeper, a property of the JVM, databases and column families."""
_CONSTANT = re.compile(r'^  .*static final java\.lang\.String (\w+) = "([^"]*)";$')
_NAME = re.compile(r"[a-z][A-Za-z0-9_]+")

HEAD = """\
# Keys of a bookie's configuration, facts of the original: made by scripts/bookie_keys.py out of the jars of BookKeeper
# {versions}. Columns, with tabs between them: name | class that declares it | versions
"""


def names(lines: list[str]) -> list[str]:
    """Return the keys among the constants in the output of javap."""
    found = [match for line in lines if (match := _CONSTANT.match(line))]
    return [match[2] for match in found if _is_key(match[1], match[2])]


def _is_key(constant: str, value: str) -> bool:
    """Return whether a constant is the name of a key: neither a default value nor something else."""
    is_default = constant.startswith("DEFAULT_") and value != "defaultRocksdbConf"
    return bool(_NAME.fullmatch(value)) and value not in NO_KEYS and not is_default


def jars_of(version: str, folder: Path) -> list[Path]:
    """Fetch the jars of a version, by Maven."""
    for group, artifact in ARTIFACTS:
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        options = [f"-Dartifact={group}:{artifact}:{version}", f"-DoutputDirectory={folder}"]
        subprocess.run(["mvn", "-q", "-B", goal, *options], check=True, cwd=folder)
    return sorted(folder.glob(f"*-{version}.jar"))


def keys_of_version(version: str, folder: Path) -> dict[str, str]:
    """Return the class of each key."""
    found: dict[str, str] = {}
    for jar in jars_of(version, folder):
        with zipfile.ZipFile(jar) as archive:
            for short, path in CLASSES.items():
                if f"{path}.class" in archive.namelist():
                    archive.extract(f"{path}.class", folder)
                    found |= {name: short for name in names(javap(folder / f"{path}.class")) if name not in found}
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        by_version = {version: keys_of_version(version, Path(folder)) for version in VERSIONS}
    rows = []
    for name in sorted(set().union(*by_version.values()), key=lambda each: (each.lower(), each)):
        having = [version for version in VERSIONS if name in by_version[version]]
        rows.append(f"{name}\t{by_version[having[0]][name]}\t{' '.join(having)}\n")
    FILE.write_text(HEAD.format(versions=" and ".join(VERSIONS)) + "".join(rows), encoding="ascii")
    counts = ", ".join(f"{version}: {len(found)}" for version, found in by_version.items())
    print(f"{FILE.relative_to(ROOT)}: {len(rows)} keys ({counts})", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
