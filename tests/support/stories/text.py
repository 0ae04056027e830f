"""Stories of processes as text: one step a line, played against real servers.

    # A comment.
    story test_k2_nothing_is_confirmed_without_an_ack_quorum
    client ensemble-change=off
    kill -9 first second
    stays confirmed 19 for 1s
    until replaced first within 5s
    read -> 40

A story ends at an empty line; its name is that of a test. Behind the name stand `full`, for a story of
`scripts/test --full` alone, and parameters: `count=2,12` makes two tests, in whose steps `$count` stands for each
value, and `full:count=60` one more for `--full`. `how/end=stop/4,kill/5` gives two parameters their values together.
Steps that belong together may stand in one line, separated by ` ; `.

A step is a verb, words and options, as in `datadriven`, and what follows from it:

    VERB ... -> ANSWER         the answer; alternatives are separated by |
    VERB ... within 5s         the step ends in time; `within 5s of kill` counts from the last kill, pause, stop or cut
    until CONDITION within 5s  the condition comes true in time (20 s if none is given)
    stays CONDITION for 1s     the condition is true for so long
    meanwhile VERB ...         the step goes on beside the next ones, until `join` or the end of the story

A stage has the verbs, `step_VERB`, and the conditions, `is_CONDITION`. An answer that no `->` looks at fails, as one
does that is missing. A step that fails names its file and line.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from inspect import isawaitable
from itertools import product
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from tests.support.datadriven import Line, MalformedError
from tests.support.process import ServerProcess

T = TypeVar("T")

PATIENCE_S = 20.0
LOOK_S = 0.02


class StoryError(AssertionError):
    """A step that failed, with its file and line."""


@dataclass(frozen=True)
class Step:
    """One line of a story."""

    where: str
    text: str

    @property
    def line(self) -> Line:
        """The verb, words and options of the step, none of which is taken yet."""
        return Line.of(self.where, _without_ends(self.text))

    @property
    def expected(self) -> tuple[str, ...]:
        """The answers that are right; none if none is expected."""
        _, arrow, answer = self.text.partition(" -> ")
        return tuple(_without_time(answer).split("|")) if arrow else ()

    @property
    def seconds(self) -> float | None:
        """Time that the step has, or takes."""
        found = _TIME.search(self.text)
        return float(found["seconds"]) if found else None

    @property
    def counts_from_harm(self) -> bool:
        """Return whether the time begins with the last harm."""
        found = _TIME.search(self.text)
        return found is not None and found["of"] is not None


_TIME = re.compile(r" (?:within|for) (?P<seconds>[0-9.]+)s(?P<of> of (?:kill|pause|stop|cut))?$")


def _without_time(text: str) -> str:
    return _TIME.sub("", text)


def _without_ends(text: str) -> str:
    return _without_time(text).partition(" -> ")[0]


@dataclass
class Story:
    """A name and steps."""

    name: str
    where: str
    is_full: bool = False
    steps: list[Step] = field(default_factory=list)


def read(path: Path) -> list[Story]:
    """Read the stories of a file; MalformedError if it has none or one of them no steps."""
    found: list[tuple[Line, list[Step]]] = []
    current: list[Step] | None = None
    for number, text in enumerate(path.read_text().splitlines(), 1):
        where = f"{path.name}:{number}"
        if not text:
            current = None
        elif text.startswith("#"):
            continue
        elif current is None:
            head = Line.of(where, text)
            if head.name != "story":
                raise MalformedError(f"{where}: a story begins with its name: {text}")
            current = []
            found.append((head, current))
        else:
            current += [Step(where, each) for each in text.split(" ; ")]
    if not found:
        raise MalformedError(f"{path.name}: no stories")
    return [story for head, steps in found for story in _variants(head, steps)]


def _variants(head: Line, steps: list[Step]) -> Iterator[Story]:
    """One story for each value of each parameter."""
    name, is_full = head.word(), bool(head.words)
    if not name.startswith("test_") or not steps or (head.words and head.word() != "full") or head.words:
        raise MalformedError(f"{head.where}: a name that begins with test_, `full` or not, and steps: {head.text}")
    choices = []
    for key, values in head.options.items():
        parameter = key.removeprefix("full:")
        choices.append([(parameter, value, parameter != key) for value in values.split(",")])
    parameters: dict[str, list[tuple[str, bool]]] = {}
    for choice in choices:
        for parameter, value, only_full in choice:
            parameters.setdefault(parameter, []).append((value, only_full))
    for chosen in product(*parameters.values()):
        given = dict(zip(parameters, chosen, strict=True))
        label = f"[{'-'.join(value for value, _ in chosen)}]" if chosen else ""
        made = Story(f"{name}{label}", head.where, is_full or any(only_full for _, only_full in chosen))
        for step in steps:
            text = step.text
            for parameters_together, (value, _) in given.items():
                names = parameters_together.split("/")
                ones = value.split("/") if len(names) > 1 else [value]  # a path is one value
                for parameter, one in zip(names, ones, strict=True):
                    text = text.replace(f"${parameter}", one)
            made.steps.append(Step(step.where, text))
        yield made


def stories_of(path: Path) -> pytest.MarkDecorator:
    """The decorator of a test that plays each story of a file: its argument `story`."""
    params = [pytest.param(each, id=each.name, marks=[pytest.mark.full] if each.is_full else []) for each in read(path)]
    return pytest.mark.parametrize("story", params)


class Stage:
    """Base of those that know the verbs of a kind of story."""

    refusals: tuple[type[Exception], ...] = ()
    """Errors of a verb whose names are its answer."""

    def __init__(self) -> None:
        self.hurt_at = 0.0
        """When a process was killed, paused or stopped last, or a link was cut, on trio's clock."""
        self.nursery: trio.Nursery | None = None
        self._holders: trio.Nursery | None = None
        self._ended = trio.Event()
        self._meanwhile: list[trio.Event] = []

    async def play(self, story: Story) -> None:
        """Play all steps; StoryError of the first that fails."""
        async with trio.open_nursery() as self._holders, trio.open_nursery() as self.nursery:
            for step in story.steps:
                await self._guarded(step, self._one)
            await self._guarded(Step(story.where, "the end"), self._end)
            self._ended.set()

    async def _end(self, step: Step) -> None:
        await self._join()
        await self.finish()

    async def finish(self) -> None:
        """Make the checks of a stage that follow its last step."""

    async def entered(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter the context; it ends with the story."""
        assert self._holders is not None
        found: T = await self._holders.start(self._hold, context)
        return found

    async def _hold(self, context: AbstractAsyncContextManager[T], task_status: trio.TaskStatus[T]) -> None:
        async with context as value:
            task_status.started(value)
            await self._ended.wait()

    async def kill(self, doomed: Sequence[ServerProcess]) -> None:
        """SIGKILL to all of them, and wait until they are gone."""
        self.hurt_at = trio.current_time()
        for each in doomed:
            if each.process is not None:
                each.process.kill()
        for each in doomed:
            await trio.to_thread.run_sync(each.kill)

    async def _guarded(self, step: Step, play: Callable[[Step], Awaitable[None]]) -> None:
        try:
            await play(step)
        except Exception as error:
            raise StoryError(f"{step.where}: {step.text}: {type(error).__name__}: {error}") from error

    async def _one(self, step: Step) -> None:
        match step.text.partition(" ")[0]:
            case "until":
                await self._look(step, wanted=True)
            case "stays":
                await self._look(step, wanted=False)
            case "meanwhile":
                assert self.nursery is not None
                ended = trio.Event()
                self._meanwhile.append(ended)
                rest = Step(step.where, step.text.partition(" ")[2])
                self.nursery.start_soon(self._beside, rest, ended, name=rest.text)
            case "join":
                await self._join()
            case _:
                await self._verb(step)

    async def _join(self) -> None:
        for each in self._meanwhile:
            await each.wait()
        self._meanwhile.clear()

    async def _beside(self, step: Step, ended: trio.Event) -> None:
        await self._guarded(step, self._verb)
        ended.set()

    def _left(self, step: Step, default: float) -> float:
        """Seconds that the step still has."""
        seconds = default if step.seconds is None else step.seconds
        return seconds - (trio.current_time() - self.hurt_at) if step.counts_from_harm else seconds

    def verb(self, name: str) -> Callable[[Line], object] | None:
        """Return a verb by its name; what it returns may be awaited."""
        found: Callable[[Line], object] | None = getattr(self, f"step_{name.replace('-', '_')}", None)
        return found

    async def _verb(self, step: Step) -> None:
        line = step.line
        verb = self.verb(line.name)
        if verb is None:
            raise line.unknown()
        with trio.fail_after(max(0.0, self._left(step, float("inf")))):
            try:
                answer = verb(line)
                answer = await answer if isawaitable(answer) else answer
            except self.refusals as error:
                answer = type(error).__name__
        line.check_used()
        if answer is None and step.expected:
            raise AssertionError("it has no answer")
        if answer is not None and not step.expected:
            raise AssertionError(f"its answer {answer} is not looked at")
        assert answer is None or str(answer) in step.expected, f"the answer is {answer}"

    async def _look(self, step: Step, *, wanted: bool) -> None:
        """Look at a condition: until it is true, or for as long as it has to be true."""
        is_true = False
        with trio.move_on_after(max(0.0, self._left(step, PATIENCE_S))):
            while True:
                line = Line.of(step.where, _without_ends(step.text).partition(" ")[2])
                condition = getattr(self, f"is_{line.name.replace('-', '_')}", None)
                if condition is None:
                    raise line.unknown()
                is_true = bool(await condition(line))
                line.check_used()
                if is_true and wanted:
                    return
                assert is_true or wanted, "it is not so any more"
                await trio.sleep(LOOK_S)
        if wanted or not is_true:
            raise AssertionError("it never came to pass")


def told(folder: Path) -> list[object]:
    """Return the stories of all files in a folder, as parameters of a test."""
    return [
        pytest.param(story, id=f"{path.stem}-{story.name}")
        for path in sorted(folder.glob("*.txt"))
        for story in read(path)
    ]


async def fails_at_its_end(play: Callable[[Story], Awaitable[None]], steps: Sequence[str]) -> None:
    """Play steps of which the last one must fail, and no other."""
    with pytest.RaisesGroup(
        pytest.RaisesExc(StoryError, match=f"^it.txt:{len(steps)}"), allow_unwrapped=True, flatten_subgroups=True
    ):
        await play(Story("it", "it.txt:0", steps=[Step(f"it.txt:{at}", text) for at, text in enumerate(steps, 1)]))
