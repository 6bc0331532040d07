"""Options are refused by name if their values or changes are not possible."""

from __future__ import annotations

import pytest

from paimon_orch.errors import InputError
from paimon_orch.format.options.validation import check_option_change, check_options


@pytest.mark.parametrize(
    ("values", "shown"), [({"merge-engine": "first-row"}, "first-row"), ({}, "not set")]
)
def test_the_error_of_an_immutable_option_has_its_value(values: dict[str, str], shown: str) -> None:
    with pytest.raises(InputError, match=rf"'merge-engine' cannot change .*\(it is {shown}\)"):
        check_option_change(values, "merge-engine", "aggregation")


def test_two_levels_are_the_fewest() -> None:
    check_options({"num-levels": "2"}, ["k"], ["k"])
    with pytest.raises(InputError, match="num-levels"):
        check_options({"num-levels": "1"}, ["k"], ["k"])
