#!/usr/bin/env python3
"""Make quire/service/original_keys.txt: the names and defaults of the keys of published versions of Pulsar and
BookKeeper.

    scripts/original_keys.py [CONF ...]     needs mvn, javap and about 70 MB in the local Maven repository

The jars come from Maven. Names and defaults are read out of their classes with javap: the fields of
ServiceConfiguration and what its constructor puts into them; the constants of BookKeeper's configurations and the
defaults of their getters. A default that is computed at run time is left empty.

CONF are configuration files that came with the originals, named PRODUCT-FILE-VERSION.conf. Of them the values are taken
that differ from the defaults in the classes. The rows of such values that the file has already are kept.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "quire" / "service" / "original_keys.txt"

PULSAR = [
    "1.22.0-incubating",
    "2.0.1-incubating",
    "2.2.0",
    "2.4.2",
    "2.6.4",
    "2.7.5",
    "2.8.0",
    "2.8.4",
    "2.9.0",
    "2.9.3",
    "2.10.0",
    "2.10.5",
    "2.11.0",
    "3.0.0",
    "3.0.7",
    "3.1.0",
    "3.1.2",
    "3.2.0",
    "3.2.3",
    "3.3.2",
    "3.3.6",
    "4.0.0",
    "4.0.8",
    "4.2.4",
    "5.0.0-M1",
]
BOOKKEEPER = ["4.14.1", "4.14.7", "4.15.0", "4.15.4", "4.16.0", "4.16.6", "4.17.0", "4.17.3", "4.18.0"]
"""First and last published version of each line."""
DEFAULTS_SINCE = {"pulsar": "2.8.0", "bookkeeper": "4.14.1"}
"""Defaults of older versions are left out, as are keys that only they had."""

PULSAR_CLASS = "org/apache/pulsar/broker/ServiceConfiguration"
BOOKKEEPER_CLASSES = (
    "org/apache/bookkeeper/conf/AbstractConfiguration",
    "org/apache/bookkeeper/conf/ClientConfiguration",
    "org/apache/bookkeeper/conf/ServerConfiguration",
    "org/apache/bookkeeper/bookie/storage/ldb/DbLedgerStorage",
    "org/apache/bookkeeper/bookie/storage/ldb/SingleDirectoryDbLedgerStorage",
    "org/apache/bookkeeper/bookie/storage/ldb/KeyValueStorageRocksDB",
    "org/apache/bookkeeper/stats/prometheus/PrometheusMetricsProvider",
)
NOT_KEYS = {
    "log",
    "properties",
    "system",
    "standard",
    "default",
    "locations",
    "metadata",
    "ledgers",
    "unknown",
    "memory",
    "available",
}

HEAD = """\
# Keys of Pulsar's brokers and standalone servers and of BookKeeper's bookies and their clients: facts of the originals.
# Made by scripts/original_keys.py, which says from what. Columns, with tabs between them:
#   name, or the beginning of one and a star | pulsar or bookkeeper | first and last version seen
# defaults in the classes since Pulsar 2.8 and BookKeeper 4.14, the newest last, with " | " between them; empty: none,
# or
#   computed at run time | other values that the configuration files of these versions have
"""

ALSO = """\
bookkeeper_*	pulsar	2.8.0	4.2.4
dlog.*	bookkeeper	4.14.1	4.18.0
storage.*	bookkeeper	4.14.1	4.18.0
storageserver.*	bookkeeper	4.14.1	4.18.0
codahaleStats*	bookkeeper	4.14.1	4.18.0
statsExport	bookkeeper	4.14.1	4.18.0
reppDnsResolverClass	bookkeeper	4.14.1	4.18.0
networkTopologyScriptFileName	bookkeeper	4.14.1	4.18.0
networkTopologyScriptNumberArgs	bookkeeper	4.14.1	4.18.0
clientLibraryVersionCheckAllowUnversioned	pulsar	1.22.0	2.3.2
loadBalancerNamespaceBundleSplitIntervalMinutes	pulsar	1.22.0	2.3.2
tokenAllowedClockSkewSeconds	pulsar	2.8.0	4.2.4
tokenSettingPrefix	pulsar	2.8.0	4.2.4
tokenPublicAlg	pulsar	2.8.0	4.2.4
openID*	pulsar	3.0.0	4.2.4
openIDFallbackDiscoveryMode	pulsar	3.0.0	4.2.4
tlsFactoryClassName	pulsar	5.0.0	5.0.0
tlsFactoryConfig	pulsar	5.0.0	5.0.0
brokerClientTlsFactoryClassName	pulsar	5.0.0	5.0.0
brokerClientTlsFactoryConfig	pulsar	5.0.0	5.0.0
jsseProvider	pulsar	5.0.0	5.0.0
brokerClientJsseProvider	pulsar	5.0.0	5.0.0
httpMaxResponseHeaderSize	pulsar	5.0.0	5.0.0
throttle-dispatch-rate	pulsar	2.8.0	4.2.4
statsHttpPort	bookkeeper	4.14.1	4.18.0
"""
"""Names that no class has as a constant: passed on to other components, or of metrics providers in other jars."""


@dataclass
class Facts:
    """Facts of one key of one product."""

    versions: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    shipped: list[str] = field(default_factory=list)


def main(confs: list[str]) -> int:
    facts: dict[tuple[str, str], Facts] = {}
    with tempfile.TemporaryDirectory() as folder:
        jars = fetch(Path(folder))
        for product, versions in (("pulsar", PULSAR), ("bookkeeper", BOOKKEEPER)):
            for version in versions:
                keys = read_version(
                    product, [jar for jar in jars if f"-{version}.jar" in jar.name], Path(folder) / "classes"
                )
                print(f"{product} {version}: {len(keys)} keys", file=sys.stderr)
                for name, default in keys.items():
                    add(facts.setdefault((name, product), Facts()), version, default, since=DEFAULTS_SINCE[product])
    for line in ALSO.splitlines():
        name, product, first, last = line.split("\t")
        facts.setdefault((name, product), Facts([first, last]))
    if not confs:
        keep_shipped(facts)
    for conf in confs:
        add_shipped(facts, Path(conf))
    rows = [
        f"{name}\t{product}\t{each.versions[0]} "
        f"{each.versions[-1]}\t{' | '.join(each.defaults)}\t{' | '.join(each.shipped)}"
        for (name, product), each in sorted(facts.items(), key=lambda item: (item[0][0].lower(), item[0]))
    ]
    FILE.write_text(HEAD + "".join(f"{row.rstrip()}\n" for row in rows), encoding="ascii")
    print(f"{FILE.relative_to(ROOT)}: {len(rows)} rows", file=sys.stderr)
    return 0


def add(facts: Facts, version: str, default: str, *, since: str) -> None:
    """Add a version, which must not be older than those before."""
    facts.versions.append(version)
    if numbers(version) >= numbers(since):
        facts.defaults = [each for each in facts.defaults if each != default] + ([default] if default else [])


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split("."))


def fetch(folder: Path) -> list[Path]:
    """Fetch the jars of all versions, by Maven."""
    items = [("org.apache.pulsar", "pulsar-broker-common", version) for version in PULSAR]
    for version in BOOKKEEPER:
        items.append(("org.apache.bookkeeper", "bookkeeper-server", version))
        items.append(("org.apache.bookkeeper.stats", "prometheus-metrics-provider", version))
    wanted = "".join(
        f"<artifactItem><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></artifactItem>"
        for group, artifact, version in items
    )
    pom = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>keys</groupId><artifactId>keys</artifactId><version>1</version><packaging>pom</packaging><build><plugins><plugin>
<artifactId>maven-dependency-plugin</artifactId><configuration><outputDirectory>{folder}/jars</outputDirectory>
<artifactItems>{wanted}</artifactItems></configuration></plugin></plugins></build></project>"""
    (folder / "pom.xml").write_text(pom)
    subprocess.run(
        ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"], cwd=folder, check=True
    )
    return sorted((folder / "jars").iterdir())


def read_version(product: str, jars: list[Path], folder: Path) -> dict[str, str]:
    """Return the defaults of one version by name."""
    assert jars, f"no jar of {product}"
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            wanted = (PULSAR_CLASS,) if product == "pulsar" else BOOKKEEPER_CLASSES
            for name in archive.namelist():
                if name.removesuffix(".class") in wanted:
                    archive.extract(name, folder)
    keys: dict[str, str] = {}
    for name in (PULSAR_CLASS,) if product == "pulsar" else BOOKKEEPER_CLASSES:
        path = folder / f"{name}.class"
        if path.exists():
            text = javap(path)
            keys |= pulsar_keys(text) if product == "pulsar" else bookkeeper_keys(text, keys)
            path.unlink()
    return keys


def javap(path: Path) -> list[str]:
    made = subprocess.run(["javap", "-p", "-c", "-constants", str(path)], check=True, capture_output=True, text=True)
    return made.stdout.splitlines()


_PASSED_ON = (
    r"\.(valueOf|of|empty|asList|getName|newHashSet|newTreeSet|newArrayList|singleton|emptySet|unmodifiable\w+):"
)
"""Calls with a constant that return it in another form."""
_FIELD = re.compile(
    r"^  (?:private|protected|public)(?! static)(?: final| volatile| transient)* ([\w.$<>,? \[\]]+?) (\w+);$"
)
_UNSET = {"boolean": "false", "int": "0", "long": "0", "double": "0", "float": "0"}
_INSTRUCTION = re.compile(r"^ +\d+: (\w+) *(.*)$")


def pulsar_keys(lines: list[str]) -> dict[str, str]:
    """Return the fields of ServiceConfiguration, with the values its constructor assigns."""
    fields = [found for line in lines if (found := _FIELD.match(line))]
    keys = {found[2]: _UNSET.get(found[1], "") for found in fields if found[2] not in NOT_KEYS}
    code = block(lines, "  public org.apache.pulsar.broker.ServiceConfiguration();")
    pushed: list[str | None] = []
    for operation, argument in code:
        if operation == "putfield":
            name, kind = target(argument)
            if name in keys:
                keys[name] = written(pushed, kind)
            pushed = []
        else:
            pushed.extend(constants(operation, argument))
    return keys


def block(lines: list[str], head: str) -> Iterator[tuple[str, str]]:
    """Return the instructions of a method."""
    start = lines.index(head) + 1
    for line in lines[start:]:
        if not line:
            return
        if found := _INSTRUCTION.match(line):
            yield found[1], found[2]


def target(argument: str) -> tuple[str, str]:
    """Return name and type of a field that is written."""
    name, _, kind = argument.partition("// Field ")[2].partition(":")
    return name.rpartition(".")[2], kind


def constants(operation: str, argument: str) -> list[str | None]:
    """Return the values an instruction adds: a constant, or None for one known only at run time."""
    if operation.startswith(("iconst", "lconst", "dconst", "fconst")):
        return [operation.rpartition("_")[2].replace("m1", "-1")]
    if operation in ("bipush", "sipush"):
        return [argument.strip()]
    if operation.startswith("ldc"):
        kind, _, value = argument.partition("// ")[2].partition(" ")
        if kind == "class":
            return [value.replace("/", ".")]
        return [re.sub(r"(?<=\d)[lfd]$", "", value) if kind in ("long", "float", "double", "int") else value]
    if operation == "getstatic":
        name, _, kind = argument.partition("// Field ")[2].partition(":")
        return [None if kind == "Ljava/lang/String;" or "DEFAULT" in name else name.rpartition(".")[2]]
    if operation in ("imul", "ldiv", "idiv", "lmul", "ddiv", "dmul"):
        return [None]
    if operation.startswith("invoke") and not re.search(_PASSED_ON, argument):
        return [None]
    return []


def written(pushed: list[str | None], kind: str) -> str:
    """Format a default as in a file."""
    if None in pushed:
        return ""
    values = [each for each in pushed if each is not None]
    if kind.startswith(("Ljava/util/Set", "Ljava/util/List")):
        return ",".join(each for each in values if not each.isdigit())
    if not values:
        return ""
    value = values[-1]
    if kind == "Z":
        return "true" if value == "1" else "false"
    if kind in ("D", "F"):
        return f"{float(value):g}" if abs(float(value)) < 1e6 else value
    return value


_CONSTANT = re.compile(r'^  .*static final java\.lang\.String (\w+) = "([^"]*)";$')


def bookkeeper_keys(lines: list[str], known: dict[str, str]) -> dict[str, str]:
    """Return the constants of a configuration, with the defaults of the getters of their names."""
    keys = dict(known)
    keys |= {
        found[2]: known.get(found[2], "")
        for line in lines
        if (found := _CONSTANT.match(line))
        and re.fullmatch(r"[a-z][A-Za-z0-9_]+", found[2])
        and found[2] not in NOT_KEYS
        and (not found[1].startswith("DEFAULT") or found[2] == "defaultRocksdbConf")
    }
    texts: list[str | None] = []
    for line in lines:
        found = _INSTRUCTION.match(line)
        if found is None:
            texts = []
            continue
        operation, argument = found[1], found[2]
        getter = re.search(
            r"[. ](getInt|getLong|getBoolean|getFloat|getDouble|getString):\(Ljava/lang/String;(.+?)\)", argument
        )
        if operation == "invokevirtual" and getter and len(texts) >= 2 and texts[-2] in keys and texts[-1] is not None:
            keys[str(texts[-2])] = of_getter(getter[1], texts[-1])
            texts = []
        elif operation == "invokevirtual" and getter and texts and texts[-1] is None:
            texts = []
        else:
            texts.extend(constants(operation, argument))
    return keys


def of_getter(getter: str, value: str) -> str:
    if getter == "getBoolean":
        return "true" if value == "1" else "false"
    if getter in ("getFloat", "getDouble"):
        return f"{float(value):g}"
    return value


def add_shipped(facts: dict[tuple[str, str], Facts], path: Path) -> None:
    """Add the values of a configuration file of an original."""
    product, _, version = path.stem.split("-")
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, equals, value = (part.strip() for part in line.strip().partition("="))
        if not equals or not re.match(r"[A-Za-z]", name):
            continue
        other = "bookkeeper" if product == "pulsar" else "pulsar"
        found = facts.get((name, product)) or facts.get((name, other))
        if found is None:
            if any(name.startswith(each[:-1]) for each, _ in facts if each.endswith("*")):
                continue
            found = facts.setdefault((name, product), Facts([version, version]))
        if value and not any(same(value, each) for each in (*found.defaults, *found.shipped)):
            found.shipped.append(value)


def same(one: str, other: str) -> bool:
    """Return whether values are equal to a program: 1 and 1.0, true and True."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one.lower() == other.lower()


def keep_shipped(facts: dict[tuple[str, str], Facts]) -> None:
    """Keep the values that earlier runs took from configuration files."""
    for name, product, first_last, _, shipped in rows(FILE.read_text(encoding="ascii").splitlines()):
        if shipped:
            facts.setdefault((name, product), Facts(first_last.split())).shipped = shipped.split(" | ")


def rows(lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        if line and not line.startswith("#") and "\t" in line:
            yield [*line.split("\t"), "", ""][:5]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
