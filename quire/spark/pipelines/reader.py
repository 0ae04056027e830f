"""Reader of an archive: lists the valid files. Any engine can read them; this reader needs pyarrow alone, no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset

from quire.spark.pipelines.errors import ManifestError
from quire.spark.pipelines.manifest import DATE_COLUMN, ArchivedFile, Manifest, read_manifest


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive at the time it was read. Later batches are not in it."""

    folder: Path
    manifest: Manifest

    @property
    def files(self) -> list[ArchivedFile]:
        """Return the files in the order of the batches."""
        return [file for record in self.manifest.batches for file in record.files]

    @property
    def paths(self) -> list[str]:
        """Return the absolute paths of `files`."""
        return [str(self.folder / file.path) for file in self.files]

    @property
    def rows(self) -> int:
        return sum(record.rows for record in self.manifest.batches)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def dataset(self) -> pyarrow.dataset.Dataset:
        """Return all rows, each once, with the date as column `dt`.

        Raises:
            ManifestError: nothing is archived yet, or a file is missing.
        """
        paths = self.paths
        if not paths:
            raise ManifestError(f"nothing is archived in {self.folder} yet")
        missing = next((path for path in paths if not Path(path).is_file()), None)
        if missing is not None:
            raise ManifestError(
                f"{missing} is in the manifest, but not on the disk: restore it, because the archive is incomplete"
            )
        dates = pyarrow.dataset.partitioning(pa.schema([(DATE_COLUMN, pa.date32())]), flavor="hive")
        return pyarrow.dataset.dataset(paths, format="parquet", partitioning=dates, partition_base_dir=str(self.folder))


def read_archive(out: str | Path) -> Archive:
    """Open the archive in folder `out`, also during a write. Read its rows with `.dataset()`, or its `.paths` with any
    engine.

    Args:
        out: folder of the archive.

    Returns:
        The archive; empty if there is none.

    Raises:
        ManifestError: the manifest is damaged.
    """
    folder = Path(out).absolute()
    return Archive(folder, read_manifest(folder))
