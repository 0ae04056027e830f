"""quire/cli/pipelines.py, and that scripts/pipelines are the same programs"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from quire.cli.pipelines import PIPELINES, pipeline_app
from quire.service.programs.command_line import USAGE_ERROR, run_app

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts/pipelines"


def module_of(name: str) -> Any:
    return importlib.import_module(f"quire.spark.pipelines.{name.replace('-', '_')}")


def group(*words: str) -> int:
    return run_app(pipeline_app(), words, name="quire pipeline")


def test_every_script_is_a_command_and_every_command_a_script() -> None:
    files = {path.name for path in SCRIPTS.iterdir() if path.is_file()}
    assert files == {*PIPELINES, *(f"{name.replace('-', '_')}.py" for name in PIPELINES)}
    for name in PIPELINES:
        script = (SCRIPTS / f"{name.replace('-', '_')}.py").read_text()
        assert f"from {module_of(name).__name__} import main\n" in script


def test_the_help_of_the_group_has_a_line_for_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert group("--help") == 0
    shown = capsys.readouterr().out
    for name, text in PIPELINES.items():
        assert any(name in line and text in line for line in shown.splitlines()), shown


@pytest.mark.parametrize("name", PIPELINES)
def test_a_command_reads_as_its_script_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert group(name, "--help") == 0
    usage, command = capsys.readouterr().out.strip().split("\n", 1)
    assert usage.strip() == f"Usage: quire pipeline {name} [OPTIONS]"
    assert module_of(name).main(["--help"]) == 0
    assert capsys.readouterr().out.strip().split("\n", 1)[1] == command
    for words in ([], ["--no-such-option"]):
        assert group(name, *words) == module_of(name).main(words) == USAGE_ERROR
        assert len(set(capsys.readouterr().err.replace(f"quire pipeline {name}", name).split("Usage"))) == 2


def test_the_exit_code_and_the_error_of_a_pipeline_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--checkpoint", "c", "--to", "t", "--topic", "t"]
    assert group("copy-topic", *words) == USAGE_ERROR
    assert capsys.readouterr().err.startswith(
        "copy-topic: --to persistent://public/default/t: the pipeline would read what it writes"
    )
    assert group("archives") == USAGE_ERROR


@pytest.mark.parametrize("given", [True, False])
def test_addresses_may_come_from_the_environment(given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def take(flags: Any) -> int:
        found.append(flags.source)
        return 0

    archive = module_of("archive")
    monkeypatch.setattr(archive, "program", lambda: archive.command_app(archive.command(take), ""))
    monkeypatch.setenv("QUIRE_SERVICE_URL", "pulsar://elsewhere:1")
    monkeypatch.setenv("QUIRE_ADMIN_URL", "http://elsewhere:2")
    urls = ["--service-url", "pulsar://here:1", "--admin-url", "http://here:2"] if given else []
    assert group("archive", "--checkpoint", "c", "--out", "o", "--topic", "t", *urls) == 0
    host = "here" if given else "elsewhere"
    assert (found[0].service_url, found[0].admin_url) == (f"pulsar://{host}:1", f"http://{host}:2")


def test_without_the_packages_of_spark_the_help_is_shown_and_a_run_names_the_remedy(tmp_path: Path) -> None:
    """Nothing of `quire pipeline` may need the extra before it can say so. (One process for all: imports take long.)"""
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "import importlib.util; there = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: there(name, *more) if name[:2] != 'py' else None\n"
        "for name in ('pyspark', 'pyarrow', 'pandas'): sys.modules[name] = None\n"
        "from quire.cli.pipelines import PIPELINES, pipeline_app\n"
        "from quire.service.programs.command_line import run_app\n"
        "for words in [*(f'{name} --help' for name in PIPELINES), *sys.argv[1:]]:\n"
        "    print(words, '->', run_app(pipeline_app(), words.split(), name='quire pipeline'), file=sys.stderr)"
    )
    runs = ["copy-topic --checkpoint c --to b --topic a", "archive --checkpoint c --out o --topic a"]
    runs += ["offload --out o --topic a"]
    command = [sys.executable, "-c", code, str(ROOT), *runs]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ})
    assert ran.returncode == 0, ran.stderr
    lines = ran.stderr.splitlines()
    assert lines[: len(PIPELINES)] == [f"{name} --help -> 0" for name in PIPELINES]
    for words, (error, end) in zip(runs, zip(*[iter(lines[len(PIPELINES) :])] * 2, strict=True), strict=True):
        name = words.partition(" ")[0]
        needed = "pyarrow" if name == "offload" else "pyspark"
        assert error.startswith(f"{name}: quire needs {needed} >= ")
        assert end == f"{words} -> {USAGE_ERROR}"


def test_a_pipeline_is_imported_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    original = importlib.import_module

    def load(name: str) -> Any:
        loaded.append(name)
        return original(name)

    monkeypatch.setattr(importlib, "import_module", load)
    command: Any = typer.main.get_command(pipeline_app())
    context = typer.Context(command)
    assert set(command.list_commands(context)) == set(PIPELINES)
    assert not loaded
    command.get_command(context, "offload")
    assert loaded == ["quire.spark.pipelines.offload"]
