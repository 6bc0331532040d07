"""Which fields describe a catalog."""

import pytest

from paimon_orch.catalog.catalog_fields import check_catalog_fields, merge_catalog_options
from paimon_orch.errors import InputError


def test_fields_that_are_not_set_are_no_options() -> None:
    merged = merge_catalog_options({"uri": "a", "token": None}, {"lock.enabled": "true"})
    assert merged == {"uri": "a", "lock.enabled": "true"}


@pytest.mark.parametrize("name", ["uri", "warehouse"])
def test_an_option_that_is_a_field_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"set {name} as a field of its own"):
        merge_catalog_options({"uri": "a"}, {name: "b"})


def test_a_named_catalog_may_have_other_options() -> None:
    check_catalog_fields(name="prod", warehouse=None, options={"token": "a"})
    check_catalog_fields(name=None, warehouse="/lake", options={})
    check_catalog_fields(name=None, warehouse="/lake", options={"metastore": "hive"})
    check_catalog_fields(name=None, warehouse=None, options={"metastore": "rest"})
