from __future__ import annotations

import io

import pytest
import trio.testing

from quire.cli.shell.output import Output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_people_get_lines_and_programs_get_values() -> None:
    plain, as_json = io.StringIO(), io.StringIO()
    for output in (Output(plain, io.StringIO()), Output(as_json, io.StringIO(), as_json=True)):
        output.line("title")
        output.tell("one ledger", ledgerId=1)
        output.value(total=1)
    assert plain.getvalue() == "title\none ledger\n"
    assert as_json.getvalue() == '{"ledgerId": 1}\n{"total": 1}\n'


async def test_progress_is_a_line_a_second_where_there_is_no_terminal() -> None:
    err = io.StringIO()
    output = Output(io.StringIO(), err)
    with output.progress("entries written", 40) as done:
        for count in range(1, 41):
            await trio.sleep(0.1)
            done(count)
    with output.progress("ledgers") as done:
        await trio.sleep(1)
        done(7)
    lines = err.getvalue().splitlines()
    assert lines[-1] == "7 ledgers"
    assert 3 <= len(lines) - 1 <= 4
    assert lines[0] in ("10 of 40 entries written", "11 of 40 entries written")


@pytest.mark.real_clock
async def test_progress_is_a_bar_on_a_terminal_and_leaves_nothing_on_standard_output() -> None:
    out, err = io.StringIO(), Terminal()
    with Output(out, err).progress("entries written", 40) as done:
        done(40)
    assert "entries written" in err.getvalue()
    assert out.getvalue() == ""
