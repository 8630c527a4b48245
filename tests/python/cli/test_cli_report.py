"""The page on a store: what it says, and how a browser shows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import mqstore
from mqstore.report import report
from mqstore.testing import Broker

SECTIONS = ["findings", "segments", "topics", "hours", "lag", "delayed", "retention", "index", "recovery", "store"]
#: What a page may hold: nothing that loads, runs or leads out of it.
TAGS = re.findall(
    r"\w+",
    "html head meta title style body header main section h1 h2 p div br i ul li dl dt dd figure details summary "
    "table thead tbody tr th td svg g defs path use text clippath pattern rect",
)


class Page(HTMLParser):
    """Text and tables by section. Refuses a tag that does not belong to a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: dict[str, str] = defaultdict(str)
        self.tables: dict[str, list[list[str]]] = defaultdict(list)
        self.figures: list[str] = []
        self._section, self._is_style, self._is_cell = "", False, False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        given = dict(attrs)
        assert not any(name.startswith("on") or name in ("src", "srcset", "action") for name in given), attrs
        assert (given.get("href") or "#").startswith("#"), attrs
        if tag == "section":
            self._section = given["id"] or ""
        elif tag == "figure":
            self.figures.append(self._section)
        elif tag == "tr":
            self.tables[self._section].append([])
        elif tag in ("td", "th"):
            self.tables[self._section][-1].append("")
        self._is_cell = tag in ("td", "th") or (self._is_cell and tag != "tr")
        self._is_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._is_cell = self._is_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.tables[self._section][-1][-1] += data
        elif not self._is_style:
            self.text[self._section] += data

    def rows(self, section: str) -> list[dict[str, str]]:
        """The rows of its table by the names of the columns."""
        heads, *rows = self.tables[section]
        return [dict(zip(heads, row, strict=True)) for row in rows]


def shown(value: object) -> str:
    """Returns the rows as a table has them: times of JSON in seconds."""
    text = "-" if value in (None, []) else str(value)
    return text[:19].replace("T", " ") if re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", text) else text


def test_the_tables_have_what_the_commands_print(broker: Path, run: Callable[..., Any]) -> None:
    page = Page(report(broker).html)
    topics = {row["topic"]: (row["messages"], row["bytes"]) for row in page.rows("topics")}
    assert topics == {row["topic"]: (str(row["messages"]), str(row["bytes"])) for row in run("du", broker, "--json").rows}
    lag = sorted(tuple(row.values()) for row in page.rows("lag"))
    assert lag == sorted(tuple(map(shown, row.values())) for row in run("lag", broker, "--json").rows)
    [facts] = run("info", broker, "--json").rows
    words = {True: "yes", False: "no", None: "-"}
    assert {row["fact"]: row["value"] for row in page.rows("store")} == {
        name: words[value] if value is None or isinstance(value, bool) else shown(value) for name, value in facts.items()
    }
    segments = [[row["segment"], row["bytes"], row["messages"]] for row in page.rows("segments")]
    counted = run("du", broker, "--by", "segment", "--json").rows
    listed = run("segments", broker, "--json").rows
    assert segments == [
        [str(each["segment"]), str(each["bytes"]), str(count["messages"])] for each, count in zip(listed, counted, strict=True)
    ]
    hours = [[row["hour"], row["messages"], row["bytes"]] for row in page.rows("hours")]
    assert hours == [
        [row["hour"][:13].replace("T", " "), str(row["messages"]), str(row["bytes"])]
        for row in run("du", broker, "--by", "hour", "--json").rows
    ]
    index = run("index", broker, "--json").rows
    assert [row["longest_chain"] for row in page.rows("index")] == [str(row["longest_chain"]) for row in index]
    assert "nothing is wrong" in page.text[""]


def test_a_segment_names_the_groups_that_read_next_in_it(mqstore_broker: Broker) -> None:
    for number in range(8):
        mqstore_broker.send("orders", b"%d" % number * 3000, queue_id=0)
    mqstore_broker.commit_offset("early", "orders", 0, 1)
    mqstore_broker.commit_offset("late", "orders", 0, 7)
    mqstore_broker.commit_offset("done", "orders", 0, 8)
    mqstore_broker.persist()
    with mqstore.open(mqstore_broker.path) as store:
        wanted = {
            group: store.topics["orders"].queues[0][offset].physical_offset for group, offset in (("early", 1), ("late", 7))
        }
        starts = [row["segment"] for row in store.inspect.segments().to_arrow().to_pylist()]
    expected = {group: str(max(start for start in starts if start <= offset)) for group, offset in wanted.items()}
    named = {
        group: row["segment"]
        for row in Page(report(mqstore_broker.path).html).rows("segments")
        for group in row["next unread of group"].split(", ")
        if group != "-"
    }
    assert named == expected


def test_findings_of_verify_are_on_the_page(copied: Callable[[str], Path]) -> None:
    path = copied("498_mixed")
    shutil.rmtree(path / "consumequeue" / "orders")
    (path / "commitlog" / "notes.txt").write_bytes(b"x")
    page = Page(report(path).html)
    with mqstore.open(path) as store:
        findings = store.verify().findings
    rows = [row for row in page.rows("findings") if row["id"] != "delayed.waiting"]
    assert [(row["severity"], row["id"]) for row in rows] == [(each.severity, each.id) for each in findings]
    assert "log.foreign_file" in [each.id for each in findings]
    for row, finding in zip(rows, findings, strict=True):
        assert row["what"] == f"{finding.message}; {finding.meaning}"
        assert finding.file.endswith(row["where"].partition(" at byte ")[0])
    assert "warning" in page.text[""]


def test_report_has_the_findings_of_doctor(stores: dict[str, Path], tmp_path: Path, run: Callable[..., Any]) -> None:
    for name, path in stores.items():
        [doctor] = run("doctor", path, "--json").objects
        [made] = run("report", path, "-o", tmp_path / f"{name}.html", "--quick", "--json").objects
        severities = [finding["severity"] for finding in doctor["findings"]]
        counts = (severities.count("error"), severities.count("warning"))
        assert (made["errors"], made["warnings"], made["ok"]) == (*counts, doctor["ok"])
        page = Page((tmp_path / f"{name}.html").read_text(encoding="utf-8"))
        shown = [(row["severity"], row["id"]) for row in page.rows("findings")]
        assert shown == [(finding["severity"], finding["id"]) for finding in doctor["findings"]][:50]
        assert list(page.text)[1] == "findings"
        when = "" if name == "whole" else ", before a broker or another writer starts"
        assert f"Do next{when}: {doctor['do_next']}" in page.text["findings"]
    assert counts == (33, 7)


EVIL = ["<script>alert(1)<b\u00a0onclick=x>", "$x^2$", "_hidden", "\u202egnp.exe", "日本語", "a" * 127]


def test_names_of_any_characters_are_text(tmp_path: Path) -> None:
    (tmp_path / "store <b>").mkdir()
    with Broker(tmp_path / "store <b>") as broker:
        for name in EVIL:
            broker.store.append(name, b"x", keys=[name])
            broker.commit_offset(name, name, 0, 0)
        broker.persist()
    page = Page(report(tmp_path / "store <b>").html)
    names = [name.replace("\u202e", r"\u202e") for name in EVIL]
    assert sorted(row["topic"] for row in page.rows("topics")) == sorted(names)
    assert {row["group"] for row in page.rows("lag")} == set(names)
    assert "$x^2$" in page.text["topics"]
    assert "\u202e" not in "".join(page.text.values())


def test_a_thousand_topics_stay_a_page(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", mapped_file_size_consume_queue=200) as store:
        store.append_batch([(f"topic-{number % 1000:05}", b"x" * (number % 97)) for number in range(2000)])
        html = report(store, deep=False).html
    page = Page(html)
    assert len(html) < 150_000
    assert "988 other topics" in page.text["topics"]
    assert "and 950 more" in page.text["topics"]
    assert len(page.rows("topics")) == 50


@pytest.mark.parametrize("name", ["491_crash_image", "491_indexroll", "498_mixed", "533_batchcq", "533_v2_record", "551_mixed"])
def test_every_store_has_a_page_with_all_sections(golden: Path, name: str) -> None:
    page = Page(report(golden / name).html)
    assert [section for section in page.text if section] == SECTIONS
    assert set(page.figures) >= {"segments", "topics", "hours", "recovery"}


def test_an_empty_store_has_a_page(tmp_path: Path) -> None:
    mqstore.open(tmp_path / "store", "x").close()
    page = Page(report(tmp_path / "store").html)
    assert [section for section in page.text if section] == SECTIONS
    assert "no progress of consumers" in page.text["lag"]
    assert "no index file" in page.text["index"]


def test_damage_is_skipped_and_reported(copied: Callable[[str], Path]) -> None:
    path = copied("498_mixed")
    segment = path / "commitlog" / f"{0:020}"
    data = bytearray(segment.read_bytes())
    data[3000:3100] = b"\xff" * 100
    segment.write_bytes(data)
    page = Page(report(path).html)
    assert {row["severity"] for row in page.rows("findings")} >= {"error"}
    assert "not counted" in page.text["topics"]


def test_a_report_is_saved_and_shown_in_a_notebook(golden: Path, tmp_path: Path) -> None:
    made = report(golden / "498_mixed", deep=False)
    assert made.save(tmp_path / "page.html").read_text(encoding="utf-8") == made.html
    with pytest.raises(ValueError, match="lies in the store"):
        made.save(Path(made.path, "commitlog", "page.html"))
    assert made.ok
    assert repr(made).startswith("<mqstore.report.Report of ")
    assert re.fullmatch(r'<iframe srcdoc="[^"]*" style="[^"]*"></iframe>', made._repr_html_(), re.DOTALL)


def test_a_store_whose_path_is_no_utf8_has_a_page(copied: Callable[[str], Path], tmp_path: Path) -> None:
    store = copied("491_basic_clean").rename(tmp_path / os.fsdecode(b"\xff"))
    assert "\\udcff" in report(store).save(tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_command_writes_the_page(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    [row] = run("report", broker, "-o", tmp_path / "page.html", "--quick", "--json").rows
    assert row == {
        "path": str(tmp_path / "page.html"),
        "bytes": (tmp_path / "page.html").stat().st_size,
        "ok": True,
        "errors": 0,
        "warnings": 0,
    }


def test_a_page_in_no_directory_is_refused_before_the_store_is_verified(
    broker: Path, tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.report.report", None)
    ran = run("report", broker, "-o", tmp_path / "none" / "page.html")
    assert (ran.code, ran.err) == (1, f"mqstore: there is no such directory: make it first: {tmp_path / 'none'}\n")


def test_a_page_in_a_store_is_refused_before_the_store_is_verified(
    broker: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.report.report", None)
    ran = run("report", broker, "-o", broker / "config" / "page.html")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(f"lies in the store {broker}: name a directory beside it\n")


def test_without_matplotlib_it_says_how_to_get_it(golden: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['matplotlib'] = None; from mqstore.cli import main; main()"
    command = [sys.executable, "-c", code, "report", golden / "498_mixed", "-o", tmp_path / "page.html"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        2,
        "",
        "mqstore: a report needs matplotlib: run pip install '.[report]' in a checkout of mqstore\n",
    )
    assert not (tmp_path / "page.html").exists()


@pytest.fixture
def chromium(tmp_path: Path) -> Callable[..., str]:
    """Runs a browser that has no window and asks nobody, and gives what it prints."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium")

    def ran(page: Path, *options: str) -> str:
        quiet = ("disable-background-networking", "disable-component-update", "disable-sync", "no-first-run", "disable-quic")
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", *(f"--{name}" for name in quiet), "--hide-scrollbars"]
        profile = tmp_path / "profile"
        command += [f"--user-data-dir={profile}", "--window-size=1060,6000", *options, f"file://{page}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=180)
        shutil.rmtree(profile, ignore_errors=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return ran


BOXES = """<script>
const boxes = [...document.querySelectorAll("svg")].map(svg => {
  const box = svg.getBoundingClientRect();
  return {name: svg.closest("section").id, box: [box.left, box.top, box.right, box.bottom], text: svg.textContent};
});
const wide = document.documentElement.scrollWidth > innerWidth;
const fonts = new Set([...document.querySelectorAll("svg text")].map(text => getComputedStyle(text).fontFamily));
document.body.textContent = JSON.stringify({boxes, wide, fonts: [...fonts]});
</script>"""


def test_a_browser_shows_each_figure_with_ink_in_it_by_day_and_by_night(
    broker: Path, tmp_path: Path, chromium: Callable[..., str]
) -> None:
    page = report(broker).save(tmp_path / "page.html")
    measured = tmp_path / "measured.html"
    measured.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{BOXES}</body>"), encoding="utf-8")
    body = re.search(r"<body>(.*)</body>", chromium(measured, "--dump-dom"), re.DOTALL)
    assert body is not None
    got = json.loads(body[1])
    assert not got["wide"]
    assert len(got["fonts"]) == 1
    figures = {figure["name"]: figure for figure in got["boxes"]}
    assert list(figures) == ["segments", "topics", "hours", "lag", "index", "recovery"]
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in figures["topics"]["text"]
    assert "oldest unread message, of group audit" in " ".join(figures["segments"]["text"].split())
    papers = []
    for dark in ([], ["--force-dark-mode"]):
        picture = tmp_path / "page.png"
        chromium(page, f"--screenshot={picture}", *dark)
        with Image.open(picture) as opened:
            image = opened.convert("RGB")
        papers.append(image.getpixel((2, 2)))
        for name, figure in figures.items():
            part = image.crop(tuple(map(int, figure["box"])))
            colors = {color: number for number, color in part.getcolors(part.width * part.height) or []}
            ink = 1 - colors.get(papers[-1], 0) / (part.width * part.height)
            assert 0.01 < ink < 0.8, (name, ink)
            # Each colour of a bar is a plane of its own; text is of many shades of a few pixels each.
            planes = [color for color, number in colors.items() if number > 300 and color != papers[-1]]
            assert len(planes) >= {"segments": 7, "hours": 7, "recovery": 1}.get(name, 1), (name, planes)
    day, night = (sum(paper) for paper in papers)
    assert day > 700
    assert night < 150


def test_the_lag_in_a_lost_queue_is_empty_on_the_page(broker: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    shutil.rmtree(path / "consumequeue" / "orders")
    page = Page(report(path).html)
    rows = [row for row in page.rows("lag") if (row["group"], row["topic"]) == ("billing", "orders")]
    assert [{row[name] for name in ("min_offset", "max_offset", "lag")} for row in rows] == [{"-"}] * 4
