from __future__ import annotations

import pickle

import pytest

from quire.spark import errors
from quire.spark.errors import OptionError, SparkSourceError


def test_an_option_error_says_option_value_and_remedy_and_survives_the_way_from_a_worker() -> None:
    error = OptionError("maxBytesPerTrigger", "many", "give a number")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "option 'maxBytesPerTrigger' is 'many': give a number"
    assert (again.option, again.value, again.remedy) == ("maxBytesPerTrigger", "many", "give a number")


def test_an_option_that_was_not_given_has_no_value_in_the_text() -> None:
    assert str(OptionError("topic", None, "give one")) == "option 'topic': give one"


def test_an_option_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="give one"):
        raise OptionError("topic", None, "give one")


def test_every_failure_is_caught_by_the_root() -> None:
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(found) > 5
    assert all(issubclass(each, SparkSourceError) for each in found)
