"""Options are refused by name if their values or changes are not possible."""

from __future__ import annotations

import pytest

from paimon_orch.errors import InputError
from paimon_orch.format.options.option_lookup import OPTION_REGISTRY
from paimon_orch.format.options.table_option import UNBOUNDED
from paimon_orch.format.options.validation import check_option_change, check_options


@pytest.mark.parametrize(
    ("values", "shown"), [({"merge-engine": "first-row"}, "first-row"), ({}, "not set")]
)
def test_the_error_of_an_immutable_option_has_its_value(values: dict[str, str], shown: str) -> None:
    with pytest.raises(InputError, match=rf"'merge-engine' cannot change .*\(it is {shown}\)"):
        check_option_change(values, "merge-engine", "aggregation")


BOUNDS: dict[str, tuple[int, int | None]] = {
    "bucket": (-2, None),
    "changelog.num-retained.min": (1, None),
    "commit.max-retries": (0, None),
    "compaction.delete-ratio-threshold": (0, 1),
    "compaction.offpeak.end.hour": (-1, 23),
    "compaction.offpeak.start.hour": (-1, 23),
    "compaction.small-file-ratio": (0, 1),
    "dynamic-bucket.target-row-num": (1, None),
    "file.compression.zstd-level": (1, 22),
    "local-sort.max-num-file-handles": (1, None),
    "metadata.iceberg.format-version": (2, 3),
    "metadata.iceberg.previous-versions-max": (0, None),
    "num-levels": (2, None),
    "num-sorted-run.compaction-trigger": (1, None),
    "snapshot.num-retained.min": (1, None),
    "sort-spill-threshold": (2, None),
    "sorted-index.records-per-range": (1, None),
    "target-file-row-num": (1, None),
}
"""The least and the greatest number of each option that does not accept all numbers."""


@pytest.mark.parametrize("key", BOUNDS)
def test_numbers_out_of_the_range_of_an_option_are_refused(key: str) -> None:
    least, greatest = BOUNDS[key]
    option = OPTION_REGISTRY[key]
    option.check(str(least))
    with pytest.raises(InputError, match=rf"{key}' = {least - 1} must be .*{least}"):
        option.check(str(least - 1))
    option.check(str(1_000_000 if greatest is None else greatest))
    if greatest is not None:
        with pytest.raises(InputError, match=rf"{key}' = {greatest + 1} must be .*{greatest}$"):
            option.check(str(greatest + 1))


def test_all_options_with_a_range_are_tested() -> None:
    limited = {key for key, option in OPTION_REGISTRY.items() if option.bounds != UNBOUNDED}
    assert limited == BOUNDS.keys()


def test_options_of_a_table_are_checked() -> None:
    check_options({"num-levels": "2"}, ["k"], ["k"])
    with pytest.raises(InputError, match="num-levels"):
        check_options({"num-levels": "1"}, ["k"], ["k"])
