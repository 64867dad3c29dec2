"""What the service has of one profile, and how a text replaces it. Not here: asking a person about a conflict."""

from dataclasses import dataclass

from tui.client import Client, ClientError
from tui.snap import Facts

MOST_BYTES = 65536
"""The service gives no more of a file; a character may have been cut at the end."""


@dataclass
class Stored:
    """`saved` is the text in force, `draft` an unfinished one beside it; each with the tag that a change must name."""

    name: str
    saved: str | None = None
    draft: str | None = None
    etag: str = ""
    draft_etag: str = ""
    rev: int | None = None

    @property
    def is_new(self) -> bool:
        return self.saved is None and self.draft is None

    @property
    def shown(self) -> str:
        """The text that an edit begins with: the unfinished one goes on where it was left."""
        return self.draft if self.draft is not None else self.saved or ""

    def take(self, document: Facts) -> None:
        """GET's document; a profile that is only a draft has no tag of its own."""
        text, draft = document.get("text"), document.get("draft.text")
        self.etag, self.draft_etag = document.text("etag"), document.text("draft.etag")
        self.saved = text if isinstance(text, str) and self.etag else None
        self.draft = draft if isinstance(draft, str) else None
        self.rev = document.whole("rev")

    async def open(self, client: Client) -> None:
        """Take it, unless the service gave only its beginning: a save would throw the rest away."""
        document = Facts(await client.get(f"/admin/profiles/{self.name}"))
        text = document.get("text")
        if isinstance(text, str) and len(text.encode()) > MOST_BYTES - 4 and document.rows("problems"):
            raise ClientError(0, "cut", f"it has over {MOST_BYTES} bytes; shorten the file on the server")
        self.take(document)

    async def put(self, client: Client, text: str, draft: bool) -> None:
        """Save over what was taken last; ClientError 412 when something else lies there now."""
        match = (self.draft_etag or self.etag) if draft else self.etag
        headers = {"If-Match": f'"{match}"'} if match else {"If-None-Match": "*"}
        body = {"text": text, "note": "", "draft": draft}
        self.take(Facts(await client.put(f"/admin/profiles/{self.name}", body, headers)))


def is_conflict(error: ClientError) -> bool:
    return error.status in (412, 428)
