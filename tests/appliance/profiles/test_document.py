"""docs/profile.md is current and complete. Not here: the shipped files (test_shipped)."""

from appliance.profiles.document import FILE, page
from appliance.profiles.schema import KEYS, PLANNED


def test_the_page_is_what_the_schema_says() -> None:
    assert FILE.read_text() == page(), "write it anew: python -m appliance.profiles.document"


def test_every_key_has_its_row_with_six_cells() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == ["name", "summary", *KEYS]
    assert all(row.count("|") == 7 for row in rows) and all(f"- `{key}`:" in page() for key in PLANNED)
