"""Builds the site of the documentation: `python docs/site/build_site.py` writes build/site.

The pages are those of GitHub: README.md is the index, the others are in docs/. The pages of the Python API come from the
docstrings of the stubs. `llms.txt` lists all pages in the order of the navigation.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "site"
#: Pages of the site that are outside docs/, by their name in the site.
OUTSIDE = {"index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}

#: The pages of the Python API: a title, a sentence, and the names that a page documents.
API = {
    "open": (
        "Open and repair",
        "Opens a store, and checks or repairs one.",
        ["open", "StoreConfig", "repair", "rebuild", "trim", "replicate", "tap", "Replica", "new_unique_key"],
    ),
    "store": (
        "Store and Writer",
        "An open store, for reading and for writing.",
        [
            *("Store", "Writer", "TopicWriter", "Consumer", "Transactions", "Transaction", "Half"),
            *("AppendResult", "Offsets", "Inspect", "BrokerState"),
        ],
    ),
    "topics": (
        "Topics and queues",
        "The topics of a store, their queues, and slices of a queue.",
        ["Topics", "Topic", "Queues", "Queue", "QueueSlice"],
    ),
    "messages": (
        "Messages and batches",
        "Messages one at a time, and many as Arrow.",
        ["Message", "MessageIterator", "GetResult", "QueryResult", "RecordBatch", "Batches", "Usage"],
    ),
    "reports": (
        "Reports",
        "Results that are plain data: statistics, recovery, findings and repairs.",
        [
            *("StoreStats", "TopicStats", "GroupStats", "RecoveryReport", "VerifyReport", "Finding", "RepairReport", "Change"),
            *("OpenTransactions", "OpenTransaction"),
            *("TrimReport", "NextRemoval", "ResendReport", "Trace", "TracedRecord", "Replicas", "Slave", "RefusedSlave"),
            "ReplicaCut",
        ],
    ),
    "errors": ("Errors", "The exceptions, and what helps.", ["errors"]),
    "modules": (
        "Modules",
        "Modules beside `mqstore` itself: asyncio, files, fixtures for tests, reports, Spark.",
        ["aio", "files", "testing", "report", "spark"],
    ),
}
_LINK = re.compile(r"(?<!`)(\]\()([^)\s]+)(\))")
_FIGURE = re.compile(r"^!\[[^\]]*\]\((figures/[a-z-]+\.svg)\)$", re.MULTILINE)


def config() -> dict[str, Any]:
    """Returns the settings of the site."""
    settings: dict[str, Any] = tomllib.loads((DOCS / "site" / "zensical.toml").read_text(encoding="utf-8"))
    project: dict[str, Any] = settings["project"]
    return project


def entries(nav: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yields title and page of each entry of the navigation, sections included."""
    for entry in nav:
        for title, value in entry.items():
            if isinstance(value, str):
                yield title, value
            else:
                yield from entries(value)


def source(page: str) -> Path:
    """Returns the file from which a page of the navigation is made, unless it is one of the Python API."""
    return ROOT / OUTSIDE[page] if page in OUTSIDE else DOCS / page


def resolved(target: str, page: Path) -> str:
    """Returns a link of a page as a link between pages of the site."""
    path, hash_sign, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return target
    file = (page.parent / path).resolve()
    for name, outside in OUTSIDE.items():
        if file == ROOT / outside:
            return f"{name}{hash_sign}{anchor}"
    if file.is_relative_to(DOCS) and file.is_file():
        return f"{file.relative_to(DOCS)}{hash_sign}{anchor}"
    if not file.is_file():
        raise SystemExit(f"{page.relative_to(ROOT)} links to {target}, which is not a file: the site cannot show it")
    copy = PAGES / "files" / file.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
    return f"files/{file.relative_to(ROOT)}"


def staged(page: Path) -> str:
    """Returns a page as the site needs it: its links are between pages of the site, and its figures are inline."""
    parts = re.split(r"(^```.*?^```$)", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for number in range(0, len(parts), 2):
        text = _LINK.sub(lambda link: link[1] + resolved(link[2], page) + link[3], parts[number])
        parts[number] = _FIGURE.sub(lambda figure: inline(DOCS / figure[1]), text)
    return "".join(parts)


def inline(figure: Path) -> str:
    """Returns a figure as an element of a page: it then follows the colours that a reader chooses for the page."""
    svg = re.sub(r"<style>.*?</style>|<metadata>.*?</metadata>", "", figure.read_text(encoding="utf-8"), flags=re.DOTALL)
    return f'<figure markdown="0">\n{"".join(line.strip() for line in svg.splitlines())}\n</figure>'


def style() -> str:
    """Returns the style of the site. Its figures follow the colours of the page, not those of the system."""
    figures = (DOCS / "figures" / "style.css").read_text(encoding="utf-8")
    by_system, by_page = "@media (prefers-color-scheme: dark) {", '@media all { [data-md-color-scheme="slate"]'
    return (DOCS / "site" / "site.css").read_text(encoding="utf-8") + figures.replace(by_system, by_page)


def api_page(title: str, about: str, names: list[str]) -> str:
    """Returns a page of the Python API, as directives that mkdocstrings replaces."""
    return "\n\n".join([f"# {title}", about, *(f"::: mqstore.{name}" for name in names), ""])


def write_pages() -> None:
    """Writes the pages and the settings of the site to build/."""
    shutil.rmtree(BUILD, ignore_errors=True)
    (PAGES / "api").mkdir(parents=True)
    pages = {page for _, page in entries(config()["nav"])}
    shutil.copyfile(DOCS / "site" / "zensical.toml", BUILD / "zensical.toml")
    for name, (title, about, names) in API.items():
        (PAGES / "api" / f"{name}.md").write_text(api_page(title, about, names), encoding="utf-8")
    for page in pages:
        if not page.startswith("api/"):
            (PAGES / page).write_text(staged(source(page)), encoding="utf-8")
    for picture in DOCS.glob("*.svg"):
        shutil.copyfile(picture, PAGES / picture.name)
    (PAGES / "site.css").write_text(style(), encoding="utf-8")


def first_sentence(page: str) -> str:
    """Returns the first sentence of a page, as plain text."""
    text = (PAGES / page).read_text(encoding="utf-8")
    paragraph = next(part for part in re.split(r"\n{2,}", text) if not part.startswith(("#", "<", "!", "|", "```", ":::", "- ")))
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", plain, maxsplit=1)[0].rstrip(":")


def llms_txt() -> str:
    """Returns the text for language models: the project in a sentence, and title, link and first sentence of each page."""
    settings = config()
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}.", ""]
    for entry in settings["nav"]:
        for title, value in entry.items():
            section = [(title, value)] if isinstance(value, str) else list(entries(value))
            if not isinstance(value, str):
                lines += ["", f"## {title}", ""]
            for name, page in section:
                lines.append(f"- [{name}]({page.removesuffix('.md')}.html): {first_sentence(page)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Builds the site. A warning of the builder, such as a link to an anchor that is absent, ends it."""
    write_pages()
    subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(BUILD / "zensical.toml")], check=True
    )
    (SITE / "llms.txt").write_text(llms_txt(), encoding="utf-8")
    print(f"wrote {SITE.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
