"""tests.support.pages: a page's commands are run as they stand, and what they print is compared with the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import walk as walk_module
from tests.support.pages.page import PageError, missing, parse, substituted
from tests.support.pages.walk import ROOT, Walk

PAGE = """\
# Title

## First

```sh
echo one
echo two
```

```text
one
t...
```

```conf
key=value
```

## Second

```sh until
cat file
```

```text
there
```
"""


def test_the_commands_of_a_page_have_their_heading_mode_and_output() -> None:
    first, second = parse(PAGE)
    assert (first.section, first.mode, first.text, first.output) == ("First", "", "echo one\necho two", ("one", "t..."))
    assert (second.section, second.mode, second.line) == ("Second", "until", 21)


def test_a_program_of_a_page_is_a_file_beside_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = ("python\n# add.py\nprint(1 + 1)\n", "python\nx = 1\n", "sh\npython add.py\n", "text\n2\n")
    page = "\n".join(f"```{block}```\n" for block in blocks)
    program, command = parse(page)
    assert (program.path, program.text) == ("add.py", "# add.py\nprint(1 + 1)\n")
    assert (command.path, command.text) == ("", "python add.py")
    monkeypatch.setattr(walk_module, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text(page)
    with Walk("page.md", tmp_path / "walk", {"1 + 1": "2"}) as walk:
        walk.plant("test ! -e add.py")
        with pytest.raises(AssertionError, match=r"test -e add.py\nended with 1"):
            walk.plant("test -e add.py")
        assert walk.next() == ""
        assert walk.next() == "2\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```python\n# a.py\n```\n```text\ny\n```", "an output without a command"),
        ("```sh sometimes\nx\n```", "'sometimes' is none of"),
        ("```text\nx\n```", "an output without a command"),
        ("```sh\nx\n```\nwords\n```text\ny\n```", "an output without a command"),
        ("```\nx\n```", "a block without a language"),
        ("```sh\nx", "a block without an end"),
        ("```sh until\nx\n```", "needs the output"),
    ],
)
def test_a_page_that_cannot_be_run_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(PageError, match=wrong):
        parse(text)


@pytest.mark.parametrize(
    ("wanted", "output", "lacks"),
    [
        (["a", "c"], "a\nb\nc\n", None),
        (["c", "a"], "a\nb\nc\n", "a"),
        (["a"], "aa", "a"),
        (["a..."], "aa", None),
        (["x   y"], "x y", None),
        (["[1]...(2)"], "[1] and (2)", None),
        (["."], "x", "."),
    ],
)
def test_lines_are_found_in_their_order(wanted: list[str], output: str, lacks: str | None) -> None:
    assert missing(wanted, output) == lacks


def test_longer_names_are_replaced_first() -> None:
    assert substituted("/var/lib and /var", {"/var": "A", "/var/lib": "B"}) == "B and A"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(walk_module, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs/page.md"


def test_a_command_that_prints_something_else_fails_or_stays_unrun_fails_the_walk(page: Path, tmp_path: Path) -> None:
    page.write_text("# A\n\n```sh\necho 1\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match="does not print"), Walk("page.md", tmp_path / "w", {}) as walk:
        walk.section("A")
    page.write_text("# A\n\n```sh\nfalse | cat\n```\n")
    with pytest.raises(AssertionError, match="ended with 1"), Walk("page.md", tmp_path / "w", {}) as walk:
        walk.section("A")
    page.write_text("# A\n\n```sh fails\ntrue\n```\n")
    with pytest.raises(AssertionError, match="ended with 0"), Walk("page.md", tmp_path / "w", {}) as walk:
        walk.section("A")
    with pytest.raises(AssertionError, match="were not run"), Walk("page.md", tmp_path / "w", {}):
        pass
    with pytest.raises(AssertionError, match="does not have nowhere"):
        Walk("page.md", tmp_path / "w", {"nowhere": ""})


def test_a_command_is_repeated_until_it_prints_what_is_wanted_and_not_for_ever(page: Path, tmp_path: Path) -> None:
    page.write_text("# A\n\n```sh until\necho x >> n; wc -l < n\n```\n\n```text\n2\n```\n")
    with Walk("page.md", tmp_path / "w", {}) as walk:
        assert walk.section("A") == "2\n"
    with pytest.raises(AssertionError, match="does not print"), Walk("page.md", tmp_path / "w", {}, wait_s=0) as walk:
        walk.section("A")


def test_a_terminal_runs_beside_the_other_commands_until_ctrl_c(page: Path, tmp_path: Path) -> None:
    page.write_text(
        "# A\n\n```sh terminal\ntrap 'echo > ended; exit' INT; echo up; while :; do sleep 0.01; done\n```\n\n"
        "```text\nup\n```\n\n"
        "<!-- Ctrl-C -->\n\n```sh\ncat ended\n```\n"
    )
    with Walk("page.md", tmp_path / "w", {}) as walk:
        walk.section("A")


def test_every_runbook_is_in_the_index_and_walked_by_a_test() -> None:
    pages = {path.name for path in (ROOT / "docs/runbooks").glob("*.md")} - {"README.md", "alerts.md"}
    index = (ROOT / "docs/runbooks/README.md").read_text()
    tests = "".join(path.read_text() for room in ("cluster", "spark") for path in (ROOT / "tests" / room).glob("*.py"))
    assert len(pages) == 15
    for name in pages:
        assert f"]({name})" in index
        assert f'{name}"' in tests, f"no test walks {name}"
        assert parse((ROOT / "docs/runbooks" / name).read_text())
