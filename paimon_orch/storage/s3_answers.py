"""Refuses answers that are not those of S3, such as a page of a gateway with the status 200.

s3fs would see a listing without entries in such an answer, or an object that was written. It would
also ask without end for the pages of a listing if the server returns the same token again.
"""

from typing import Any

_FIELD_BY_OPERATION = {
    **dict.fromkeys(
        ("CompleteMultipartUpload", "GetObject", "HeadObject", "PutObject", "UploadPart"), "ETag"
    ),
    "ListObjectsV2": "IsTruncated",
}
"""What each answer of S3 without an error states."""
_TOKEN = "paimon_orch_token"  # noqa: S105 - no secret


def check_answers(events: Any) -> None:
    """Check the answers of a client of botocore by its events."""
    listing = "before-parameter-build.s3.ListObjectsV2"
    events.register(listing, _note_token, unique_id=f"paimon-orch-{listing}")
    for operation in _FIELD_BY_OPERATION:
        event = f"after-call.s3.{operation}"
        events.register(event, _check_answer, unique_id=f"paimon-orch-{event}")


def _note_token(*, params: Any, context: Any, **_: Any) -> None:
    context[_TOKEN] = params.get("ContinuationToken")


def _check_answer(*, http_response: Any, parsed: Any, model: Any, context: Any, **_: Any) -> None:
    if http_response.status_code >= 300:
        return
    name = _FIELD_BY_OPERATION[model.name]
    if name not in parsed:
        raise ConnectionError(
            f"the answer to {model.name} has no {name}, so it is not that of an S3 store; check "
            "endpoint_url, and gateways in front of the store"
        )
    token = context.get(_TOKEN)
    if token is not None and parsed.get("NextContinuationToken") == token:
        raise ConnectionError("the store returned the same page of a listing again")
