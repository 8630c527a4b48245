"""The navigation of the site has every page, and the pages of the Python API have every public name."""

from __future__ import annotations

import build_site
import pytest

import mqstore

OF_MODULES = set(mqstore.errors.__all__) | {"__version__"}


def test_each_page_of_docs_is_once_in_the_navigation() -> None:
    pages = [page for _, page in build_site.entries(build_site.config()["nav"])]
    assert len(pages) == len(set(pages))
    files = {page.name for page in build_site.DOCS.glob("*.md")}
    assert set(pages) == files | set(build_site.OUTSIDE) | {f"api/{name}.md" for name in build_site.API}


def test_each_public_name_is_on_one_page_of_the_python_api() -> None:
    documented = [name for _, _, names in build_site.API.values() for name in names]
    assert len(documented) == len(set(documented))
    assert set(mqstore.__all__) - OF_MODULES <= set(documented)
    assert all(hasattr(mqstore, name) or __import__(f"mqstore.{name}") for name in documented)


def test_links_of_a_page_become_links_between_pages_of_the_site() -> None:
    page, readme = build_site.DOCS / "FORMAT.md", build_site.ROOT / "README.md"
    assert build_site.resolved("ARCHITECTURE.md#glossary", page) == "ARCHITECTURE.md#glossary"
    assert build_site.resolved("docs/FORMAT.md", readme) == "FORMAT.md"
    assert build_site.resolved("../README.md#installing", page) == "index.md#installing"
    assert build_site.resolved("#record", page) == "#record"
    assert build_site.resolved("https://example.org/a.md", page) == "https://example.org/a.md"
    with pytest.raises(SystemExit, match=r"docs/FORMAT\.md links to NOTHING\.md"):
        build_site.resolved("NOTHING.md", page)
