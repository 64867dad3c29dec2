"""The body of POST /v1/batches. Not here: the other routes' bodies (schema.py)."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from appliance.api.schema import Body, Metadata

Id = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class BatchRequest(Body):
    """POST /v1/batches. `metadata` may hold our options: colibri_window ("22:00-06:00"), colibri_profile (works only
    while that one serves), colibri_expires_hours."""

    input_file_id: Id
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/score"]
    completion_window: Literal["24h"] = Field(description="OpenAI's; a batch works until it is done, see metadata")
    metadata: Metadata | None = None
