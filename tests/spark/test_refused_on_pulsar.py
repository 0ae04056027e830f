"""The one part that Apache Pulsar's brokers do not have is refused with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

from quire.spark.pipelines.offload import main
from tests.spark.support import numbered, publish


def test_offloading_is_refused_with_the_remedy_unless_the_topic_is_what_is_missing(
    options: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(client, topic, numbered(0, 3))
    given = [f"--set={name}={text}" for name, text in options.items()]
    arguments = ["--out", str(tmp_path / "out"), *given, "--topic"]
    assert main([*arguments, topic]) == 1
    shown = capsys.readouterr().err
    assert "only those of Quire offload this way" in shown
    assert "pulsar-admin topics offload, or quire pipeline archive" in shown
    assert main([*arguments, "none"]) == 1
    assert "topic persistent://public/default/none does not exist" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
