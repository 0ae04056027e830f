"""Source files of the checkout, as tests of the source itself read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement of a tree, in the order of the source. Expressions, which are most of it, are skipped."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.stmt):
            yield node
        below: list[ast.AST] = []
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            below += getattr(node, field, ())
        todo += reversed(below)
