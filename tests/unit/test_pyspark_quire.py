"""pyspark_quire/, and quire.spark.register"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource

import quire.spark
from pyspark_quire import DefaultSource
from quire.spark.errors import MissingDependencyError, OptionError
from tests.support.refusals import refuses


def run(program: str) -> str:
    """Return the output of `program` in a Python of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_spark_finds_it_by_its_name():
    assert issubclass(DefaultSource, DataSource)
    assert DefaultSource.name() == "quire"


def test_importing_it_imports_neither_pyarrow_nor_trio_nor_a_client():
    loaded = run(
        "import pyspark_quire, sys\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('pyarrow', 'trio', 'httpx2', 'quire')])"
    )
    assert loaded.strip() == "[]"


def test_importing_it_without_pyspark_harms_nobody():
    program = (
        "import sys\nsys.modules['pyspark'] = None\nimport pyspark_quire\n"
        "print(hasattr(pyspark_quire, 'DefaultSource'))"
    )
    assert run(program).strip() == "False"


def test_importing_quire_spark_imports_no_spark():
    assert (
        run("import quire.spark, sys\nprint('pyspark' in sys.modules or 'pyarrow' in sys.modules)").strip() == "False"
    )


def test_class_and_instance_travel_by_reference_and_plain():
    assert cloudpickle.loads(cloudpickle.dumps(DefaultSource)) is DefaultSource
    made = DefaultSource(CaseInsensitiveDict({"Topic": "t"}))
    copy = pickle.loads(pickle.dumps(made))
    assert copy.options["topic"] == "t"


def test_without_pyarrow_the_first_thing_spark_makes_says_so(monkeypatch: pytest.MonkeyPatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else real(name))
    refuses(MissingDependencyError, lambda: DefaultSource({}), "quire needs pyarrow")


def test_with_an_old_pyspark_the_first_thing_spark_makes_says_so(monkeypatch: pytest.MonkeyPatch):
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.1.0" if name == "pyspark" else real(name))
    refuses(MissingDependencyError, lambda: DefaultSource({}), r"quire needs pyspark >= 4\.2, but 4\.1\.0 is installed")
    refuses(MissingDependencyError, lambda: quire.spark.register(object()), "pyspark")


def test_a_wrong_option_is_told_when_it_is_used_by_its_name():
    refuses(OptionError, lambda: DefaultSource(CaseInsensitiveDict({"toppic": "t"})).reader(None), "toppic")


def test_register_registers_this_very_class():
    registered: list[type] = []

    class Registry:
        def register(self, source: type) -> None:
            registered.append(source)

    quire.spark.register(SimpleNamespace(dataSource=Registry()))
    assert registered == [DefaultSource]
