"""What docs/operations.md promises to be in the log is in the sources."""

import re

from conftest import ROOT

OPERATIONS = ROOT / "docs/operations.md"


def sources():
    """The sources without the line breaks that Rust leaves out of a text."""
    text = "\n".join(path.read_text() for folder in ["core/src", "server/src"] for path in (ROOT / folder).rglob("*.rs"))
    return re.sub(r"\\\n\s*", "", text)


def test_every_line_of_the_log_that_is_quoted_can_be_written():
    section = OPERATIONS.read_text().split("\n## What each failure looks like\n", 1)[1].split("\n## ", 1)[0]
    rows = [row.split(" | ") for row in section.splitlines() if row.startswith("| ") and row.count(" | ") >= 2]
    assert len(rows) > 15
    known = sources()
    missing = []
    for row in rows[1:]:
        for quoted in re.findall(r"`([^`]+)`", row[1]):
            missing += [part for part in re.split(r"…", quoted) if part.strip(" :;,") and part.strip(" :;,") not in known]
    assert missing == []


def test_links_lead_to_files():
    for page in [OPERATIONS, ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
