"""Each page of the site in headless Chromium, narrow and wide, light and dark. `make docstest` builds the site and runs this."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
PAGES = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("*.html") if page.name != "404.html")
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")

#: The elements that reach out of the window, unless an ancestor scrolls by itself or hides them.
WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const clips = element => {
    for (let box = element.parentElement; box && box !== document.body; box = box.parentElement)
      if (getComputedStyle(box).overflowX !== "visible") return true;
    return false;
  };
  return [...document.querySelectorAll("main *")]
    .filter(element => element.getBoundingClientRect().right > width + 1 && !clips(element))
    .map(element => element.tagName + " " + element.textContent.trim().slice(0, 60)).concat("the page scrolls sideways");
}"""
#: Texts of a figure that leave it, that lie over one another, or that are too small to read.
TEXTS = """() => [...document.querySelectorAll("figure svg")].flatMap(svg => {
  const name = svg.id, paper = svg.getBoundingClientRect(), faults = [];
  const texts = [...svg.querySelectorAll("text")].map(text => ({text: text.textContent, box: text.getBoundingClientRect()}));
  texts.forEach(({text, box}, number) => {
    if (box.left < paper.left || box.right > paper.right || box.top < paper.top || box.bottom > paper.bottom)
      faults.push(`${name}: "${text}" leaves the figure`);
    if (box.height < 9) faults.push(`${name}: "${text}" is ${box.height} px high`);
    for (const other of texts.slice(number + 1)) {
      const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
      const down = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
      if (across > 1 && down > 4) faults.push(`${name}: "${text}" is over "${other.text}"`);
    }
  });
  return faults;
})"""
#: The brightness of the paper of each figure, 0 to 255.
FIGURES = """() => [...document.querySelectorAll("figure svg .paper")].map(paper =>
  getComputedStyle(paper).fill.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) / 3)"""
#: The brightness of the page, 0 to 255.
PAPER = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) / 3"


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Serves the site at a port of this host."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Starts the system's Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program is not None, "Chromium is missing: install it (Debian: apt-get install chromium)"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture(scope="session", params=[(width, scheme) for width in WIDTHS for scheme in SCHEMES], ids=str)
def watched(request: pytest.FixtureRequest, browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """Opens a window and returns it with the list of its faults, which grows as pages are shown in it."""
    width, scheme = request.param
    faults: list[str] = []
    window = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = window.new_page()
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    # The next page cancels what the one before still loads. A file that is missing is an answer with an error, in the console.
    page.on(
        "requestfailed",
        lambda sent: None if sent.failure == "net::ERR_ABORTED" else faults.append(f"{sent.url}: {sent.failure}"),
    )
    page.on("request", lambda sent: None if is_local(sent.url) else faults.append(f"requests {sent.url}"))
    yield page, faults
    window.close()


def is_local(url: str) -> bool:
    return urlsplit(url).hostname == "127.0.0.1" or urlsplit(url).scheme in ("data", "blob")


def test_site_is_built() -> None:
    assert "index.html" in PAGES, "the site is absent: `make docs` builds it"


@pytest.mark.parametrize("name", PAGES)
def test_page_has_no_fault_and_no_sideways_scroll(address: str, watched: tuple[Page, list[str]], name: str) -> None:
    page, faults = watched
    faults.clear()
    answer = page.goto(f"{address}{name}", wait_until="load")
    assert answer is not None
    assert answer.ok
    page.wait_for_timeout(50)  # scripts that start after the load
    assert faults == []
    assert page.evaluate(WIDE) == []
    assert page.evaluate(TEXTS) == []
    dark = page.evaluate("() => matchMedia('(prefers-color-scheme: dark)').matches")
    assert (page.evaluate(PAPER) < 80) == dark
    assert all(10 < brightness < 80 if dark else brightness > 200 for brightness in page.evaluate(FIGURES))


def test_no_link_inside_the_site_is_dead(address: str, browser: Browser) -> None:
    window = browser.new_context(viewport={"width": 1280, "height": 900}, java_script_enabled=False)
    page = window.new_page()
    anchors: dict[str, set[str]] = {}
    links: dict[str, list[str]] = {}
    for name in PAGES:
        page.goto(f"{address}{name}", wait_until="domcontentloaded")
        anchors[name] = set(page.locator("[id]").evaluate_all("found => found.map(element => element.id)"))
        links[name] = page.locator("a[href]").evaluate_all("found => found.map(link => link.getAttribute('href'))")
    window.close()
    dead = []
    for name, targets in links.items():
        for target in targets:
            path, anchor = urldefrag(urljoin(f"{address}{name}", target))
            if not path.startswith(address):
                continue
            file = unquote(path.removeprefix(address)) or "index.html"
            if not (SITE / file).is_file() or (anchor and unquote(anchor) not in anchors.get(file, set())):
                dead.append(f"{name}: {target}")
    assert sum(map(len, links.values())) > 10 * len(PAGES)
    assert dead == []


def test_search_finds_a_page_by_a_word_of_it(address: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(address)
    page.get_by_role("button", name="Search").first.click()
    field = page.get_by_placeholder("Search")
    field.wait_for(timeout=20_000)
    field.fill("checkpoint")
    page.get_by_role("option", name="Checkpoint").first.wait_for(timeout=20_000)
    page.close()


def test_llms_txt_has_a_line_with_a_link_for_each_page() -> None:
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S.*$", (SITE / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(links) == PAGES
