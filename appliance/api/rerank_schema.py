"""What POST /v1/rerank takes, as Jina's and Cohere's clients send it. Not here: the answer."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Tag

from appliance.api.schema import Body, one_of

MOST_DOCUMENTS = 1000
"""As Cohere allows."""


class Document(BaseModel):
    """`{"text": …}`, with whatever the client keeps beside it."""

    model_config = ConfigDict(strict=True, extra="ignore")
    text: str


Given = Annotated[
    Annotated[str, Tag("<string>")] | Annotated[Document, Tag("<object>")],
    one_of(string="<string>", object="<object>"),
]


class RerankRequest(Body):
    """POST /v1/rerank."""

    query: Annotated[str, Field(min_length=1)]
    documents: Annotated[list[Given], Field(min_length=1, max_length=MOST_DOCUMENTS, fail_fast=True)]
    model: str | None = Field(None, description="an id of /v1/models; the only model when left out")
    top_n: int | None = Field(None, ge=1, description="tell so many of the best only")
    return_documents: bool | None = Field(None, description="true: each result has its document's text")
    user: str | None = None

    def texts(self) -> list[str]:
        """The documents' texts."""
        return [given if isinstance(given, str) else given.text for given in self.documents]

    def document(self, index: int) -> dict[str, Any]:
        """What is told of a document where it is asked for."""
        return {"document": {"text": self.texts()[index]}} if self.return_documents else {}
