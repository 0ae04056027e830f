"""Check that each *_pb2.py and *_pb2.pyi is what scripts/protoc makes of the .proto file beside it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    kept = {path.relative_to(ROOT) for path in (ROOT / "quire").rglob("*_pb2.py*") if path.suffix in (".py", ".pyi")}
    with tempfile.TemporaryDirectory() as folder:
        made_in = Path(folder)
        subprocess.run(
            [ROOT / "scripts" / "protoc", folder],
            env={**os.environ, "PYTHON": sys.executable},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        made = {path.relative_to(made_in): path.read_bytes() for path in made_in.rglob("*_pb2.py*")}
    assert made, "scripts/protoc made nothing"
    for name in sorted(kept - made.keys()):
        print(f"{name} has no .proto file beside it")
    stale = sorted(name for name, data in made.items() if name not in kept or (ROOT / name).read_bytes() != data)
    for name in stale:
        print(f"{name} is stale: run scripts/protoc")
    return 1 if stale or kept - made.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
