import pytest

from paimon_orch.format.types.cast_rules import can_cast
from paimon_orch.format.types.data_types import parse_type

MOMENTS = ["DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"]


@pytest.mark.parametrize("old", MOMENTS)
def test_dates_and_times_cast_only_to_string_without_length(old: str) -> None:
    assert can_cast(parse_type(old), parse_type("STRING"))
    for new in ("VARCHAR(30)", "CHAR(30)"):
        assert not can_cast(parse_type(old), parse_type(new))
        assert can_cast(parse_type("INT"), parse_type(new))
