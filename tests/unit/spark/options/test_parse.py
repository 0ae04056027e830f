from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import cast

import pytest

from quire.spark.errors import OptionError
from quire.spark.limits import Limits
from quire.spark.offsets import EARLIEST, LATEST, Boundary
from quire.spark.options.foreign import FOREIGN, Foreign
from quire.spark.options.parse import COLUMN_NAMES, Options
from quire.spark.options.table import OPTIONS, Option, Use
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues

PUBLIC = "persistent://public/default/"
X = f"{PUBLIC}x"


def batch(**options: str) -> Options:
    return Options.parse({"topic": "x", **options}, use="batch")


def stream(**options: str) -> Options:
    return Options.parse({"topic": "x", "subscription": "s", **options}, use="stream")


def refused(use: Use, options: dict[str, str]) -> OptionError:
    with pytest.raises(OptionError) as info:
        Options.parse(options, use=use)
    return info.value


def shown(value: object) -> str:
    if isinstance(value, Boundary):
        return str({name: each for name, each in dataclasses.asdict(value).items() if each})
    return str(value)


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "parse.txt"))
def test_options(dialogue: Dialogue) -> None:
    """`batch: topic=x ; columns=value` shows the fields that are not at their defaults, or the option that is refused
    with the remedy. P is the namespace public/default."""

    def answer(step: Line) -> str:
        given = step.word().replace("P/", PUBLIC).replace("%20", " ").split(" ; ") if step.words else []
        use = cast(Use, step.name)
        try:
            options = Options.parse(
                {name: value for name, _, value in (each.partition("=") for each in given)}, use=use
            )
        except OptionError as error:
            return f"refused {error.option}: {error.remedy}".replace(PUBLIC, "P/")
        default = Options(use=use)
        names = [field.name for field in dataclasses.fields(options)]
        changed = {name: getattr(options, name) for name in names if getattr(options, name) != getattr(default, name)}
        return (" ".join(f"{name}={shown(value)}" for name, value in changed.items()) or "defaults").replace(
            PUBLIC, "P/"
        )

    dialogue.check(answer)


def test_the_defaults_are_those_of_the_documentation() -> None:
    options = batch()
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert (options.service_url, options.admin_url) == ("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
    assert (options.fail_on_data_loss, options.is_held, options.columns) == (True, False, COLUMN_NAMES)
    assert stream().starting == LATEST
    assert stream().limits == Limits()
    assert stream(maxMessagesPerTrigger="7", maxBytesPerTrigger="2k").limits == Limits(messages_max=7, bytes_max=2048)
    assert (stream().is_held, batch(subscription="s").is_held, batch().is_held) == (True, True, False)


@pytest.mark.parametrize(
    ("option", "fields"),
    [
        ("pollTimeoutMs", "poll_timeout_ms"),
        ("operationTimeoutMs", "operation_timeout_ms"),
        ("chunkedMessageHold", "chunked_message_hold"),
        ("topicsRefreshMs", "topics_refresh_ms"),
    ],
)
def test_the_table_has_the_defaults_that_are_in_force(option: str, fields: str) -> None:
    (documented,) = (each.default for each in OPTIONS if each.name == option)
    assert int(documented) == getattr(batch(), fields)


def remedy_of(use: Use, name: str) -> str:
    try:
        Options.parse({name: "\x00"}, use=use)
    except OptionError as error:
        return error.remedy
    return ""


@pytest.mark.parametrize("option", OPTIONS, ids=lambda each: each.name)
def test_every_option_and_alias_of_the_table_is_known_where_it_says(option: Option) -> None:
    uses: tuple[Use, ...] = ("batch", "stream", "write")
    for name in (option.name, *option.aliases):
        for use in uses:
            remedy = remedy_of(use, name)
            assert "no such option" not in remedy
            assert ("leave it out" in remedy) == (use not in option.uses)


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda each: each.name)
def test_an_option_of_kafka_or_pulsar_that_means_nothing_here_is_refused_with_a_remedy(foreign: Foreign) -> None:
    name = foreign.name.replace("*", "some.key")
    assert refused("stream", {"topic": "x", name: "v"}).remedy == foreign.remedy


def test_options_pickle() -> None:
    options = Options.parse({"topicsPattern": "t/n/.*", "startingOffsets": f'{{"{X}": "1:2"}}'}, use="batch")
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("text", ["", "0", "0m", "-1", "1.5m", "m", "1x", "1mm", "١", "99999999999999t"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    assert "k, m or g" in refused("stream", {"topic": "x", "maxBytesPerTrigger": text}).remedy


@pytest.mark.parametrize(
    "option", ["maxMessagesPerTrigger", "minPartitions", "pollTimeoutMs", "operationTimeoutMs", "chunkedMessageHold"]
)
@pytest.mark.parametrize("text", ["0", "-1", "", "1.0", "many", "9" * 19 + "9"])
def test_a_number_that_is_none_is_refused(option: str, text: str) -> None:
    assert "whole number, at least 1" in refused("stream", {"topic": "x", "subscription": "s", option: text}).remedy


def test_a_misspelt_option_is_one_line_of_name_value_and_remedy() -> None:
    error = refused("batch", {"topic": "x", "startingOfsets": "latest"})
    assert str(error) == "option 'startingOfsets' is 'latest': there is no such option; did you mean 'startingOffsets'?"


def test_a_stream_without_a_hold_is_not_held() -> None:
    assert Options.parse({"topic": "x", "hold": "none"}, use="stream").is_held is False
