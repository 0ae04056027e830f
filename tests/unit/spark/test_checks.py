"""quire/spark/checks.py"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from quire.spark.checks import PYSPARK_MIN, java_major, require_java, require_package, require_packages
from quire.spark.errors import MissingDependencyError
from tests.support.refusals import refuses


def java(folder: Path, script: str) -> dict[str, str]:
    """Return an environment whose JAVA_HOME has a `java` that runs `script`."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": "/usr/bin:/bin"}


def test_what_is_installed_here_will_do():
    require_packages()


def test_a_missing_package_is_one_line_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingDependencyError, match=r"quire needs pyarrow >= 18.0, .*pip install 'quire-broker\[spark\]'"
    ) as error:
        require_package("pyarrow", (18, 0))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("version", ["4.1.2", "3.5.0", "4.1"])
def test_a_pyspark_below_the_first_that_will_do_is_refused(version: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with pytest.raises(MissingDependencyError, match=f"quire needs pyspark >= 4.2, but {version} is installed"):
        require_package("pyspark", PYSPARK_MIN)


@pytest.mark.parametrize("version", ["4.2.0.dev1", "4.3.0", "5.0"])
def test_a_pyspark_from_the_first_that_will_do_on_is_taken(version: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    require_package("pyspark", PYSPARK_MIN)


def test_a_package_without_metadata_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    require_package("pyspark", PYSPARK_MIN)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("Unable to locate a Java Runtime.", None),
    ],
)
def test_the_version_is_read_from_what_java_says(text: str, major: int | None):
    assert java_major(text) == major


def test_the_java_of_java_home_is_the_one_that_counts(tmp_path: Path):
    assert require_java(java(tmp_path, "echo 'openjdk version \"21.0.1\" 2023' >&2")) == 21


def test_an_old_java_is_one_line(tmp_path: Path):
    with pytest.raises(
        MissingDependencyError, match=r"Spark needs Java 17 or newer, but .*java is Java 11; install"
    ) as error:
        require_java(java(tmp_path, "echo 'openjdk version \"11.0.2\"' >&2"))
    assert "\n" not in str(error.value)


def test_a_java_that_does_not_run_is_one_line(tmp_path: Path):
    refuses(MissingDependencyError, lambda: require_java(java(tmp_path, "exit 3")), "does not run")
    with pytest.raises(MissingDependencyError, match=r"JAVA_HOME is /nowhere, but /nowhere/bin/java does not run"):
        require_java({"JAVA_HOME": "/nowhere"})
    refuses(MissingDependencyError, lambda: require_java(java(tmp_path / "other", "echo hello")), "prints no version")


def test_no_java_at_all_is_one_line(tmp_path: Path):
    with pytest.raises(MissingDependencyError, match="Spark needs Java, which was not found") as error:
        require_java({"PATH": str(tmp_path)})
    assert "\n" not in str(error.value)
