"""quire/spark/pipelines/manifest.py and reader.py"""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from quire.spark.pipelines.archive import record_of
from quire.spark.pipelines.errors import ArchiveInUseError, ManifestError
from quire.spark.pipelines.manifest import (
    NAME,
    ArchivedFile,
    BatchRecord,
    BeginRecord,
    Manifest,
    Span,
    parse,
    read_manifest,
    writing,
)
from quire.spark.pipelines.reader import read_archive
from tests.support.refusals import refuses

P0 = "persistent://public/default/x-partition-0"
BEGIN = BeginRecord(checkpoint="/checkpoint", base=0)


def record(batch: int, query: str = "q", last: tuple[int, int] = (1, 9)) -> BatchRecord:
    file = ArchivedFile(f"batch={batch}/dt=2026-01-31/part-0.parquet", 10, 1000)
    return BatchRecord(batch=batch, query=query, rows=10, files=(file,), positions={P0: Span((1, 0), last)})


def test_what_was_appended_is_read_again(tmp_path: Path):
    records: list[BeginRecord | BatchRecord] = [
        BEGIN,
        record(0),
        BeginRecord(checkpoint="/other", base=1, start={P0: "1:10"}),
        record(1, "r"),
    ]
    with writing(tmp_path) as writer:
        for each in records:
            writer.append(each)
        assert writer.manifest.records == tuple(records)
    assert read_manifest(tmp_path).records == tuple(records)
    with writing(tmp_path) as writer:
        assert writer.manifest.records == tuple(records)


def test_a_record_is_one_line_of_json_that_names_files_rows_bytes_and_positions(tmp_path: Path):
    with writing(tmp_path) as writer:
        writer.append(record(7))
    line = (tmp_path / NAME).read_text()
    assert line.endswith("}\n")
    assert json.loads(line) == {
        "v": 1,
        "batch": 7,
        "query": "q",
        "rows": 10,
        "files": [{"path": "batch=7/dt=2026-01-31/part-0.parquet", "rows": 10, "bytes": 1000}],
        "positions": {P0: {"first": [1, 0], "last": [1, 9]}},
    }


def test_a_torn_append_at_any_byte_does_not_count_and_is_cut_by_the_next_writer(tmp_path: Path):
    with writing(tmp_path) as writer:
        writer.append(BEGIN)
        whole = (tmp_path / NAME).read_bytes()
        writer.append(record(0))
        both = (tmp_path / NAME).read_bytes()
    for size in range(len(whole), len(both)):
        (tmp_path / NAME).write_bytes(both[:size])
        assert read_manifest(tmp_path).records == (BEGIN,)
    with writing(tmp_path) as writer:
        assert (tmp_path / NAME).read_bytes() == whole
        writer.append(record(0))
    assert read_manifest(tmp_path).records == (BEGIN, record(0))


def test_a_damaged_line_is_an_error_that_names_it():
    with pytest.raises(ManifestError, match="m, line 2: invalid record"):
        parse(json.dumps(BEGIN.to_json()).encode() + b"\n{broken\n", "m")
    refuses(ManifestError, lambda: parse(b'{"v":2}\n', "m"), "version 2 is not supported, only 1")
    refuses(ManifestError, lambda: parse(b'{"v":1,"batch":1}\n', "m"), "line 1")
    refuses(ManifestError, lambda: parse(b"[]\n", "m"), "line 1")


def test_an_archive_has_one_writer_at_a_time(tmp_path: Path):
    with (
        writing(tmp_path),
        pytest.raises(ArchiveInUseError, match="another process is writing the archive"),
        writing(tmp_path),
    ):
        pass
    with writing(tmp_path):
        pass


def test_the_highest_position_of_each_partition_is_over_all_batches():
    records = (BEGIN, record(0, last=(1, 9)), record(1, last=(2, 3)), record(2, last=(2, 1)))
    manifest = Manifest(records)
    assert manifest.last_positions() == {P0: (2, 3)}
    assert manifest.next_batch() == 3
    assert Manifest().next_batch() == 0


def test_the_query_is_that_behind_the_last_begin():
    assert Manifest((BEGIN, record(0))).query == "q"
    assert Manifest((BEGIN, record(0), BEGIN)).query is None
    assert Manifest().query is None


def rows(topic: str, partition: int | None, places: list[tuple[int, int]]) -> pa.Table:
    return pa.table(
        {
            "__topic": pa.array([topic] * len(places)),
            "__partition": pa.array([partition] * len(places), pa.int32()),
            "__ledger": pa.array([ledger for ledger, _ in places], pa.int64()),
            "__entry": pa.array([entry for _, entry in places], pa.int64()),
            "value": pa.array([b"v"] * len(places)),
        }
    )


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, path)


def test_a_batch_is_described_by_what_is_in_its_files(tmp_path: Path):
    folder = tmp_path / "batch=4"
    topic = "persistent://public/default/x"
    write(folder / "dt=2026-01-31" / "a.parquet", rows(topic, 0, [(9, 5), (9, 6), (10, 0)]))
    write(folder / "dt=2026-02-01" / "b.parquet", rows(topic, 0, [(10, 1), (8, 700)]))
    write(folder / "dt=2026-02-01" / "c.parquet", rows(topic, None, [(3, 2), (3, 2)]))
    write(folder / "dt=2026-02-01" / "empty.parquet", rows(topic, 0, []))
    made = record_of(tmp_path, folder, 4, "q")
    assert made is not None
    assert made.positions == {f"{topic}-partition-0": Span((8, 700), (10, 1)), topic: Span((3, 2), (3, 2))}
    assert [(file.path, file.rows) for file in made.files] == [
        ("batch=4/dt=2026-01-31/a.parquet", 3),
        ("batch=4/dt=2026-02-01/b.parquet", 2),
        ("batch=4/dt=2026-02-01/c.parquet", 2),
    ]
    assert all(file.size_bytes == (tmp_path / file.path).stat().st_size for file in made.files)
    assert (made.batch, made.query, made.rows) == (4, "q", 7)
    assert record_of(tmp_path, tmp_path / "batch=5", 5, "q") is None


def test_a_reader_sees_the_files_of_the_manifest_and_no_others_with_their_dates(tmp_path: Path):
    folder = tmp_path / "batch=0"
    write(folder / "dt=2026-01-31" / "a.parquet", rows("t", None, [(1, 0), (1, 1)]))
    made = record_of(tmp_path, folder, 0, "q")
    assert made is not None
    with writing(tmp_path) as writer:
        assert read_archive(tmp_path).files == []
        writer.append(BEGIN)
        writer.append(made)
        write(tmp_path / "batch=1" / "dt=2026-01-31" / "b.parquet", rows("t", None, [(1, 2)]))
        archive = read_archive(str(tmp_path))
    assert (archive.rows, len(archive.paths)) == (2, 1)
    assert archive.size_bytes == (tmp_path / archive.files[0].path).stat().st_size
    table = archive.dataset().to_table()
    assert table["__entry"].to_pylist() == [0, 1]
    assert table["dt"].to_pylist() == [datetime.date(2026, 1, 31)] * 2


def test_a_file_that_is_gone_is_told_and_so_is_an_empty_archive(tmp_path: Path):
    refuses(ManifestError, lambda: read_archive(tmp_path).dataset(), "nothing is archived")
    with writing(tmp_path) as writer:
        writer.append(record(0))
    with pytest.raises(ManifestError, match=r"part-0\.parquet is in the manifest, but not on the disk"):
        read_archive(tmp_path).dataset()
