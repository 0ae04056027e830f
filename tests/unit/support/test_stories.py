"""tests/support/stories/text: the language of stories, and the failure of each kind of step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from tests.support.datadriven import Line, MalformedError
from tests.support.stories.text import Stage, Step, Story, StoryError, read

HEAD = "story test_it\n"


class Counter(Stage):
    """A number that steps change."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.finished = False

    async def step_add(self, line: Line) -> None:
        self.number += line.number()

    async def step_number(self, line: Line) -> int:
        return self.number

    async def step_add_slowly(self, line: Line) -> None:
        for _ in range(line.number()):
            await trio.sleep(1)
            self.number += 1

    async def step_harm(self, line: Line) -> None:
        await self.kill([])

    async def is_number(self, line: Line) -> bool:
        return self.number == line.number()

    async def is_hanging(self, line: Line) -> bool:
        await trio.sleep_forever()
        return True

    async def finish(self) -> None:
        self.finished = True
        assert self.number != 13, "thirteen"


async def play(text: str) -> Counter:
    stage = Counter()
    steps = [Step(f"it.txt:{number}", each) for number, each in enumerate(text.splitlines(), 1)]
    await stage.play(Story("test_it", "it.txt:0", steps=steps))
    return stage


GOOD = [
    "add 2\nnumber -> 2",
    "add 2\nnumber -> 1|2",
    "add-slowly 2 within 2.5s\nnumber -> 2",
    "meanwhile add-slowly 3\nuntil number 2 within 2.5s\nstays number 2 for 0.5s\njoin\nnumber -> 3",
    "meanwhile add-slowly 3",
    "harm\nadd-slowly 2\nadd-slowly 1 within 3.5s of kill",
]


@pytest.mark.parametrize("text", GOOD)
async def test_a_story_that_is_so_passes(text: str) -> None:
    assert (await play(text)).finished


BAD = [
    ("add 2\nnumber -> 3", "it.txt:2: number -> 3: AssertionError: the answer is 2"),
    ("add 2\nnumber", "it.txt:2: number: AssertionError: its answer 2 is not looked at"),
    ("add 2 -> 2", "it.txt:1: add 2 -> 2: AssertionError: it has no answer"),
    ("add 2 3", "it.txt:1: add 2 3: MalformedError: it.txt:1: 3 is not used"),
    ("add 2 by=3", "it.txt:1: add 2 by=3: MalformedError: it.txt:1: by is not used"),
    ("subtract 2", "it.txt:1: subtract 2: MalformedError: it.txt:1: unknown"),
    ("until even", "it.txt:1: until even: MalformedError: it.txt:1: unknown"),
    ("until number 1", "it.txt:1: until number 1: AssertionError: it never came to pass"),
    ("stays number 0 1 for 1s", "it.txt:1: stays number 0 1 for 1s: MalformedError: it.txt:1: 1 is not used"),
    ("stays number 1 for 1s", "it.txt:1: stays number 1 for 1s: AssertionError: it is not so any more"),
    ("stays hanging for 1s", "it.txt:1: stays hanging for 1s: AssertionError: it never came to pass"),
    ("meanwhile add-slowly 3\nstays number 0 for 2s", "it.txt:2: stays number 0 for 2s: AssertionError: it is not so"),
    ("add-slowly 3 within 2.5s", "it.txt:1: add-slowly 3 within 2.5s: TooSlowError"),
    (
        "harm\nadd-slowly 2\nadd-slowly 1 within 2.5s of kill",
        "it.txt:3: add-slowly 1 within 2.5s of kill: TooSlowError",
    ),
    ("meanwhile add-slowly x", "it.txt:1: add-slowly x: MalformedError: it.txt:1: x is no number"),
    ("add 13", "it.txt:0: the end: AssertionError: thirteen"),
]


@pytest.mark.parametrize(("text", "error"), BAD)
async def test_a_step_that_is_not_so_fails_with_its_file_and_line(text: str, error: str) -> None:
    with pytest.raises((StoryError, ExceptionGroup)) as found:
        await play(text)
    raised: BaseException = found.value
    while isinstance(raised, ExceptionGroup):
        raised = raised.exceptions[0]
    assert isinstance(raised, StoryError)
    assert re.match(re.escape(error), str(raised)), raised


def test_stories_are_read_with_their_parameters(tmp_path: Path) -> None:
    path = tmp_path / "it.txt"
    path.write_text(
        "# About all.\n\nstory test_one\nadd 1\n# Inside.\nadd 2\n\n# About it.\nstory test_two full\nadd 3\n\n"
        "story test_three count=1,2 full:count=9\nadd $count\n"
    )
    found = [(each.name, each.is_full, [step.text for step in each.steps]) for each in read(path)]
    assert found == [
        ("test_one", False, ["add 1", "add 2"]),
        ("test_two", True, ["add 3"]),
        ("test_three[1]", False, ["add 1"]),
        ("test_three[2]", False, ["add 2"]),
        ("test_three[9]", True, ["add 9"]),
    ]
    assert read(path)[0].steps[1].where == "it.txt:6"


@pytest.mark.parametrize(
    "text", ["", "# Nothing.\n", "add 1\n", HEAD, "story it\nadd 1\n", "story test_it slow\nadd 1\n", "story\nadd 1\n"]
)
def test_a_file_without_a_story_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "it.txt"
    path.write_text(text)
    with pytest.raises(MalformedError):
        read(path)
