"""Fields of answers."""

import pytest

from paimon_orch.catalog.rest import answer_fields
from paimon_orch.catalog.rest.rest_errors import RestAnswerError

ANSWER = {"text": "a", "number": 5, "flag": True, "object": {"k": "v"}, "list": [1], "null": None}


def test_fields_of_the_right_type() -> None:
    assert answer_fields.read_text(ANSWER, "text", "w") == "a"
    assert answer_fields.read_number(ANSWER, "number", "w") == 5
    assert answer_fields.read_flag(ANSWER, "flag", "w") is True
    assert answer_fields.read_object(ANSWER, "object", "w") == {"k": "v"}
    assert answer_fields.read_list(ANSWER, "list", "w") == [1]
    assert answer_fields.read_list(ANSWER, "null", "w") == []
    assert answer_fields.read_optional_text(ANSWER, "missing", "w") is None
    options = {"o": {"a": None, "b": True, "c": 1, "d": "x"}}
    assert answer_fields.read_options(options, "o", "w") == {"b": "true", "c": "1", "d": "x"}


@pytest.mark.parametrize("field", ["flag", "text", "missing", "null"])
def test_a_field_of_another_type_is_named(field: str) -> None:
    with pytest.raises(RestAnswerError, match=f"GET x: field '{field}'"):
        answer_fields.read_number(ANSWER, field, "GET x")


def test_options_must_be_texts() -> None:
    with pytest.raises(RestAnswerError, match="'a' must be a text"):
        answer_fields.read_options({"o": {"a": []}}, "o", "w")
