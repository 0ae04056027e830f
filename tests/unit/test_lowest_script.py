"""scripts/lowest.py: the versions for the run with the lowest ones that pyproject.toml declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
[project]
dependencies = ["trio>=0.35", "typer>=0.16,<0.29", {more}]
[project.optional-dependencies]
spark = ["pyspark>=4.2,<5", "pyarrow>=18"]
"""
TOOLS = ("pytest", "hypothesis", "pulsar-client", "hatchling", "editables", "matplotlib", "py-spy", "py4j")


def requirements() -> Callable[[str, str], Iterator[str]]:
    spec = spec_from_file_location("lowest", ROOT / "scripts" / "lowest.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Callable[[str, str], Iterator[str]] = module.requirements
    return made


def lock(*tools: str) -> str:
    return "".join(f"{tool}==7.{index} \\\n    --hash=sha256:0\n" for index, tool in enumerate(tools))


def test_declared_packages_have_their_lower_bounds_and_tools_the_versions_of_the_lock() -> None:
    found = list(requirements()(PROJECT.format(more=""), lock(*TOOLS)))
    assert found == ["trio==0.35", "typer==0.16", "pyarrow==18", *(f"{each}==7.{i}" for i, each in enumerate(TOOLS))]


def test_a_package_without_a_lower_bound_is_an_error() -> None:
    with pytest.raises(ValueError, match="rich<15 has no lower bound"):
        list(requirements()(PROJECT.format(more='"rich<15"'), lock(*TOOLS)))


def test_a_tool_that_is_not_in_the_lock_is_an_error() -> None:
    with pytest.raises(ValueError, match="py4j is not in the lock"):
        list(requirements()(PROJECT.format(more=""), lock(*TOOLS[:-1])))


def test_every_package_of_the_project_has_a_lower_bound() -> None:
    text, locked = ((ROOT / each).read_text() for each in ("pyproject.toml", "scripts/lock/dev.txt"))
    assert all("==" in each for each in requirements()(text, locked))
