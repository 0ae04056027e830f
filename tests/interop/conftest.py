"""The Java tester of these tests, which `scripts/test --interop` builds with Maven and names. Without it they do not
exist.
"""

from __future__ import annotations

import os

import pytest

pytest.register_assert_rewrite("tests.interop.turns_parts")
if "QUIRE_INTEROP" not in os.environ:
    collect_ignore_glob = ["test_*.py"]
