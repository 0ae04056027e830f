"""Jars of ZooKeeper's own server: a folder that is named, one that Maven fills, or those in the pyspark wheel.

Six jars (4 MB) are enough for a server that clients reach in the clear. One that serves TLS needs netty too, which is
in the folder lib/ of Apache's download and in pyspark.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from quire.distribution import install_command
from quire.servers.errors import CliError

FETCH_DEADLINE_S: Final = 600.0
"""For all of what Maven does; the first time it fetches its own plug-ins too."""
SERVER_JARS: Final = "zookeeper-3*.jar"
"""A folder that has one of this name has the server."""

JARS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "org.apache.zookeeper:zookeeper:3.9.5": "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0",
        "org.apache.zookeeper:zookeeper-jute:3.9.5": "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a",
        "io.dropwizard.metrics:metrics-core:4.2.37": "3c70d19049d10f474ab803706b9c0677bcf5fd9e1afeb4f6c496f62e38b27678",
        "org.xerial.snappy:snappy-java:1.1.10.8": "50485d06037fea3d6e40c968386feeca6338cc9872e25549593ff3eb352cefcc",
        "org.slf4j:slf4j-api:2.0.17": "7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832",
        "org.slf4j:slf4j-simple:2.0.17": "ddfea59ac074c6d3e24ac2c38622d2d963895e17f70b38ed4bdae4d780be6964",
    }
)
"""Jars that are fetched, as group:artifact:version, and the SHA-256 of each."""


class JarsError(CliError):
    """The jars are not there, cannot be fetched, or are not what they should be. The text says what to do."""


def find_jars(jars: Path | None = None) -> Path:
    """Return the folder of jars: `jars`, or that of the installed pyspark if None.

    Raises:
        JarsError: there is no ZooKeeper server in it.
    """
    if jars is not None:
        if not any(jars.glob(SERVER_JARS)):
            raise JarsError(f"{jars} has no {SERVER_JARS}: --fetch-jars fetches it there with Maven")
        return jars
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = Path(folder) / "jars"
        if any(found.glob(SERVER_JARS)):
            return found
    raise JarsError(
        "there is no ZooKeeper server: name a folder of its jars with --jars (lib/ of Apache's download is one), fetch"
        " 4 MB of them with quire zookeeper --jars DIR --fetch-jars, or install the 0.5 GB of pyspark, which carries"
        f" them: {install_command('zookeeper')}"
    )


def fetch_jars(folder: Path) -> None:
    """Have Maven put the jars into `folder`, unless they are there, and check each. Prints a line before and after.

    Raises:
        JarsError: there is no Maven, it failed, or a jar is not the one that is known.
    """
    if not missing_from(folder):
        return
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsError(
            f"--fetch-jars needs Maven, and there is no mvn on PATH: install it, or put the jars into {folder}"
        )
    print(f"quire zookeeper: fetching {len(JARS)} jars with Maven into {folder}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="quire-jars-") as made:
        fetched = Path(made) / "jars"
        (Path(made) / "pom.xml").write_text(_pom())
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        command = [maven, "-q", "-B", "-C", "-f", f"{made}/pom.xml", goal, f"-DoutputDirectory={fetched}"]
        try:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=FETCH_DEADLINE_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise JarsError(
                f"Maven cannot fetch ZooKeeper's jars ({error}): see its lines above; is there a network?"
            ) from error
        wrong = missing_from(fetched)
        if wrong:
            raise JarsError(
                f"what Maven fetched is not what was expected: {', '.join(wrong)}; nothing was put into {folder}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        # The server's jar last: a folder that has it has all.
        for name in sorted(map(file_name, JARS), key=lambda name: name.startswith("zookeeper-3")):
            shutil.copyfile(fetched / name, folder / name)
    size_mb = sum((folder / file_name(jar)).stat().st_size for jar in JARS) / 1e6
    print(f"quire zookeeper: fetched, {size_mb:.1f} MB", file=sys.stderr, flush=True)


def missing_from(folder: Path) -> list[str]:
    """Return the names of the jars that are not in `folder`, or are not the ones that are known."""
    return [name for name, digest in ((file_name(jar), JARS[jar]) for jar in JARS) if _digest(folder / name) != digest]


def file_name(jar: str) -> str:
    """Return the name of the file of a jar.

    >>> file_name("org.slf4j:slf4j-api:2.0.17")
    'slf4j-api-2.0.17.jar'
    """
    _, artifact, version = jar.split(":")
    return f"{artifact}-{version}.jar"


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _pom() -> str:
    """A project that depends on the jars, and on nothing that they depend on."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
        for group, artifact, version in (jar.split(":") for jar in JARS)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>quire</groupId><artifactId>zookeeper-jars</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
