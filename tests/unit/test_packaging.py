"""The wheel has all of Quire's files and nothing else; no other package uses Quire's names."""

from __future__ import annotations

import re
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from broker.config import SERVER_VERSION
from quire.distribution import DISTRIBUTION, install_command, installed_version

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
SHIPPED = (".py", ".pyi", ".proto", ".txt", ".typed", ".html", ".css", ".js", ".svg")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_file_of_our_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in SHIPPED
    }
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == ours


def test_the_wheel_has_the_licence_and_the_command(wheel: zipfile.ZipFile) -> None:
    names = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert b"Apache License" in wheel.read(names["licenses/LICENSE"])
    assert b"quire = quire.cli.main:main" in wheel.read(names["entry_points.txt"])


def test_a_plain_install_brings_no_spark_and_no_tools_of_ours(wheel: zipfile.ZipFile) -> None:
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    required = [
        line.removeprefix("Requires-Dist: ").lower()
        for line in wheel.read(metadata).decode().splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert required
    for name in ("pyspark", "pyarrow", "pytest", "pulsar-client", "matplotlib"):
        assert not [line for line in required if line.startswith(name)]


def test_the_distribution_has_one_name_and_its_version_is_found_by_it() -> None:
    assert PYPROJECT["project"]["name"] == DISTRIBUTION
    assert installed_version() == PYPROJECT["project"]["version"]


def test_every_text_that_installs_quire_names_the_distribution() -> None:
    """PyPI's `quire` is another project: a text that installs it gives the user a different program."""
    folders = [ROOT / name for name in (*PACKAGES, "docs", "scripts", "conf", "tools", "bench")]
    files = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in ("", ".py", ".md", ".conf", ".txt")
    ]
    wrong = re.compile(r"pip install (?:-\w+ )*['\"]?quire(?!-broker)|\bquire\[\w+\]")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in [*files, *ROOT.glob("*.md")]
        if path.is_file()
        for match in wrong.finditer(path.read_text())
    ]
    assert found == []
    assert not wrong.search(install_command("spark"))
    assert wrong.search("pip install 'quire[spark]'")
    assert wrong.search("pip install quire")


def test_clients_are_told_the_version_of_the_package() -> None:
    assert f"Quire {PYPROJECT['project']['version']}" == SERVER_VERSION


def test_nobody_else_uses_our_names() -> None:
    taken = packages_distributions()
    for name in {*PACKAGES, "simulation", "bench"}:
        assert set(taken.get(name, [])) <= {DISTRIBUTION}


def test_the_lock_pins_everything_with_hashes_and_trio_exactly() -> None:
    lines = (ROOT / "scripts" / "lock" / "dev.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert all("==" in pin and pin.endswith("\\") for pin in pins)
    assert sum(pin.startswith("trio==") for pin in pins) == 1
    locked = {pin.partition("==")[0] for pin in pins}
    groups = PYPROJECT["dependency-groups"]["dev"] + PYPROJECT["project"]["dependencies"]
    wanted = {requirement.replace("==", ">=").partition(">=")[0].lower() for requirement in groups}
    assert wanted <= locked
