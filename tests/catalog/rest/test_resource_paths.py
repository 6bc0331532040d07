"""Paths and queries of the REST API."""

import pytest

from paimon_orch.catalog.rest import resource_paths
from paimon_orch.errors import InputError


def test_names_are_encoded_like_javas_url_encoder_except_for_spaces() -> None:
    # the expected text is java.net.URLEncoder.encode of JDK 21 of the same name
    name = "a b$c/d~e*f.g-h_i+j%k\u00e4?#&="
    encoded = "a+b%24c%2Fd%7Ee*f.g-h_i%2Bj%25k%C3%A4%3F%23%26%3D"

    assert resource_paths.encode_component(name) == encoded
    segment = encoded.replace("+", "%20")  # not all servers decode "+" in a path
    assert resource_paths.database(name) == f"databases/{segment}"
    assert resource_paths.table("db", name, "commit") == f"databases/db/tables/{segment}/commit"


@pytest.mark.parametrize("name", ["", " ", ".", ".."])
def test_a_name_that_would_change_the_path_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be a name in a REST catalog"):
        resource_paths.table("db", name)
    with pytest.raises(InputError, match="cannot be a name in a REST catalog"):
        resource_paths.database(name)


def test_a_query_keeps_its_order_and_encodes_values() -> None:
    query = resource_paths.build_query({"tableNamePattern": "a b%", "maxResults": 10})

    assert query == "tableNamePattern=a+b%25&maxResults=10"


def test_paths_of_a_table() -> None:
    table = ("db", "t$branch_b")
    root = "databases/db/tables/t%24branch_b"

    assert resource_paths.tables("db") == "databases/db/tables"
    assert resource_paths.table(*table) == root
    assert resource_paths.table(*table, "partitions", "mark") == f"{root}/partitions/mark"
    forward = resource_paths.table(*table, "branches", "x y", "forward")
    assert forward == f"{root}/branches/x%20y/forward"
