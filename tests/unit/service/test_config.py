"""quire.service.config"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from quire.service.config import MB_IN_BYTES, MS_IN_S, build, conf_key, keys_of, parse, parse_value, render
from quire.service.errors import ConfigError
from quire.service.properties import Grammar, parse_properties
from tests.support.refusals import refuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    port: int = conf_key("brokerServicePort", 6650, minimum=0, maximum=65535, doc="The port.")
    ratio: float = conf_key("ratio", 0.5, doc="A share.")
    on: bool = conf_key("switchedOn", True, doc="On or off.")
    name: str = conf_key("clusterName", "standalone", doc="A name.")
    level: str = conf_key("level", "low", choices=("low", "high"), doc="Low or high.")
    roles: tuple[str, ...] = conf_key("superUserRoles", ("a", "b"), doc="Names.")
    cache_mb: int | None = conf_key("cacheMB", None, doc="Megabytes; empty: computed.")
    not_in_the_file: int = 7

    def __post_init__(self) -> None:
        if self.name == self.level:
            raise ValueError("clusterName and level must differ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    service_port: int = conf_key("brokerServicePort", 1, doc="The port.")
    folder: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    wait_s: float = conf_key("waitMs", 1500, unit=MS_IN_S, minimum=1, doc="A time.")
    size_bytes: int = conf_key("sizeMb", 2, unit=MB_IN_BYTES, doc="A size.")
    folders: str = conf_key("folders", "a", joined=True, doc="Folders.")


def of(text: str) -> Sample:
    keys = keys_of(Sample)
    values = parse(parse_properties(text, Grammar.JAVA, source="conf/sample.conf"), keys)
    return build(Sample, {keys[name].field_name: value for name, value in values.items()})


def test_what_is_not_given_has_its_default() -> None:
    assert of("") == Sample()
    assert of("# brokerServicePort=1\n! on=false\n\n   \n") == Sample()


def test_every_kind_of_value_is_read() -> None:
    text = (
        "brokerServicePort = 7000\nratio=0.25\nswitchedOn=FALSE\nclusterName=a = b # c\n"
        "level=high\nsuperUserRoles=x, y ,,z\ncacheMB=12\r\n"
    )
    assert of(text) == Sample(
        port=7000, ratio=0.25, on=False, name="a = b # c", level="high", roles=("x", "y", "z"), cache_mb=12
    )


def test_an_empty_value_is_the_default_except_for_text() -> None:
    assert of("brokerServicePort=\ncacheMB=\nswitchedOn=\nsuperUserRoles=\n") == Sample()
    assert of("clusterName=").name == ""


def test_a_key_counts_in_the_unit_of_the_file_and_the_field_in_its_own() -> None:
    wait, size, _ = keys_of(Scaled).values()
    assert (Scaled().wait_s, Scaled().size_bytes) == (1.5, 2 << 20)
    assert (wait.default, wait.kind, size.default) == (1500, int, 2)
    assert [wait.unit.in_file(wait.unit.in_field(ms)) for ms in (0, 1, 333, 86_400_000)] == [0, 1, 333, 86_400_000]
    refuses(ValueError, lambda: parse_value(wait, "1.5"), "not a whole number")


def test_of_values_given_several_times_the_first_counts_and_of_a_list_all() -> None:
    assert parse_value(keys_of(Sample)["clusterName"], "x", "y") == "x"
    assert parse_value(keys_of(Sample)["superUserRoles"], "x", "y,z") == ("x", "y", "z")
    assert parse_value(keys_of(Scaled)["folders"], "x", "y") == "x,y"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("brokerServicePort=abc", "brokerServicePort: not a number: 'abc'"),
        ("brokerServicePort=1.5", "brokerServicePort: not a whole number: '1.5'"),
        ("brokerServicePort=65536", "brokerServicePort: 65536 is above 65535"),
        ("brokerServicePort=-1", "brokerServicePort: -1 is below 0"),
        ("ratio=nan", "ratio: not a number: nan"),
        ("switchedOn=yes", "switchedOn: neither true nor false: 'yes'"),
        ("level=middle", "level: 'middle' is none of low, high"),
        ("brokerServicePorr=1", "no such key: 'brokerServicePorr' (did you mean brokerServicePort?)"),
        ("zzzzzzzzzzzz=1", "no such key: 'zzzzzzzzzzzz'"),
        ("=1", "not a key=value line: '=1'"),
        ("just words", "no such key: 'just'"),
    ],
)
def test_a_wrong_line_is_named_with_its_number(line: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(f"# one\n\n{line}\n")
    assert str(caught.value) == f"conf/sample.conf:3: {complaint}"


def test_all_problems_of_a_file_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        of("brokerServicePort=x\nclusterName=c\nswitchedOn=2\n")
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == ["1", "3"]


def test_values_that_do_not_go_together_are_an_error() -> None:
    refuses(ConfigError, lambda: of("clusterName=low"), "must differ")


def test_a_rendered_file_reads_back_as_the_defaults() -> None:
    text = render(keys_of(Sample).values(), head="A head.\nOf two lines.")
    assert of(text) == Sample()
    assert "# Names.\nsuperUserRoles=a,b\n" in text
    assert text.startswith("# A head.\n# Of two lines.\n\n# The port.\nbrokerServicePort=6650\n")
    assert "not_in_the_file" not in text


def test_only_fields_with_a_key_are_keys() -> None:
    assert list(keys_of(Part)) == ["brokerServicePort"]
