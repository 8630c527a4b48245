"""The figures of the pages: each is there, is shown by a page, and says what a store that is made now says."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import architecture
import draw
import on_disk
import page_cache
import pytest
import recovery
import time_lines

import mqstore

SVG = "{http://www.w3.org/2000/svg}"
#: Figures that are the same wherever they are drawn, apart from texts that are marked as measured.
REPEATED = ("architecture", "store-layout", "record", "queue-and-index", "checkpoint", "recovery-decision")


def tree(name: str) -> ElementTree.Element:
    return ElementTree.parse(draw.HERE / f"{name}.svg").getroot()


def facts(name: str) -> Any:
    metadata = tree(name).find(f"{SVG}metadata")
    assert metadata is not None
    return json.loads(metadata.text or "")


def shape(root: ElementTree.Element) -> list[tuple[str, dict[str, str], str | None]]:
    skipped = (f"{SVG}metadata", f"{SVG}style")
    return [
        (part.tag, dict(part.attrib), None if "data-measured" in part.attrib else part.text)
        for part in root.iter()
        if part.tag not in skipped
    ]


def texts(name: str) -> list[str]:
    return [text.text or "" for text in tree(name).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", draw.FIGURES)
def test_figure_is_text_in_an_svg_that_a_phone_can_show(name: str) -> None:
    root = tree(name)
    assert root.get("id") == name
    assert root.get("viewBox", "").startswith("0 0 360 ")
    assert len(texts(name)) > 10
    style = root.find(f"{SVG}style")
    assert style is not None
    assert (style.text or "").strip() == (draw.HERE / "style.css").read_text(encoding="utf-8").strip()
    assert not list(root.iter(f"{SVG}image"))


def test_every_committed_figure_is_drawn_by_the_script() -> None:
    assert {file.stem for file in draw.HERE.glob("*.svg")} == set(draw.FIGURES)


@pytest.mark.parametrize("name", REPEATED)
def test_redrawn_figure_has_the_committed_structure(name: str) -> None:
    if name == "recovery-decision":
        with pytest.warns(RuntimeWarning, match="is INCOMPLETE"):
            again = draw.drawn(name)
    else:
        again = draw.drawn(name)
    assert shape(ElementTree.fromstring(again)) == shape(tree(name)), f"python docs/figures/draw.py {name}"


def test_architecture_has_the_modules_and_their_imports_point_down() -> None:
    found = facts("architecture")
    assert set(architecture.WORDS) == set(found["modules"])
    for module, imports in found["imports"].items():
        assert all(found["modules"].index(other) < found["modules"].index(module) for other in imports)
    assert found["imports"]["log"]
    assert found["imports"]["format"] == []


def test_store_layout_lists_each_file_of_a_store(tmp_path: Path) -> None:
    on_disk.make(tmp_path / "store")
    files = {file.relative_to(tmp_path / "store") for file in (tmp_path / "store").rglob("*") if file.is_file()}
    drawn = {re.sub(r"index/\d+", "index/*", file["path"]): file["bytes"] for file in facts("store-layout")["files"]}
    assert drawn == {re.sub(r"index/\d+", "index/*", str(file)): (tmp_path / "store" / file).stat().st_size for file in files}


def test_record_has_the_offsets_and_bytes_of_a_dump(tmp_path: Path) -> None:
    on_disk.make(tmp_path / "store")
    with mqstore.open(tmp_path / "store") as store:
        dumped = store.inspect.dump(0).to_pylist()
    fields = facts("record")["fields"]
    assert [(field["field"], field["offset"], field["length"]) for field in fields] == [
        (row["field"], row["offset"], row["length"]) for row in dumped
    ]
    bytes_drawn = [text.text for text in tree("record").iter(f"{SVG}text") if text.get("class") == "mono middle"]
    log = (tmp_path / "store" / "commitlog" / ("0" * 20)).read_bytes()
    differ = [at for at, text in enumerate(bytes_drawn) if text != f"{log[at]:02x}"]
    [time] = [field for field in fields if field["field"] == "store_time"]
    assert len(bytes_drawn) == sum(row["length"] for row in dumped)
    assert set(differ) <= set(range(time["offset"], time["offset"] + 8))


def test_chain_of_the_index_is_that_of_the_keys_of_a_store(tmp_path: Path) -> None:
    on_disk.make(tmp_path / "store")
    drawn = facts("queue-and-index")
    slot, chain = on_disk.chain(drawn)
    keys = {record["at"]: (record["topic"], record["key"]) for record in drawn["records"]}
    assert len(chain) == 3
    with mqstore.open(tmp_path / "store") as store:
        for item in chain:
            topic, key = keys[drawn["items"][str(item)]["physical_offset"]]
            rows = store.inspect.dump_key(topic, key).to_pylist()
            assert rows[0]["field"] == f"slot {slot}"
            assert [int(row["field"].split()[1]) for row in rows if row["field"].endswith("key_hash")] == chain
        for number, entry in enumerate(drawn["entries"]):
            assert store.topics["orders"].queues[0][number].physical_offset == entry["physical_offset"]


def test_checkpoint_fields_and_mark_are_in_their_order() -> None:
    found = facts("checkpoint")
    fields = found["fields"]
    assert fields["40"] in found["records"]
    assert fields["40"] < fields["48"] == found["scan_start"] < found["mark"] < found["log_end"]
    assert fields["56"] == fields["72"] == found["records"].index(fields["48"])
    assert found["mark"] == found["records"][-1]


def test_steps_of_an_append_are_in_their_order() -> None:
    seconds = facts("write-sequence")["seconds"]
    assert seconds["returned"] <= seconds["dispatched"] <= seconds["queue_file"] < seconds["durable"]


def test_flush_modes_keep_what_the_durability_page_promises(tmp_path: Path) -> None:
    for modes in (facts("flush-modes")["seconds"], time_lines.mode_facts(tmp_path, 1)["seconds"]):
        assert list(modes) == list(time_lines.MODES)
        assert modes["mapped"]["committed"] == modes["mapped"]["returned"] <= modes["mapped"]["durable"]
        assert modes["pool"]["returned"] <= modes["pool"]["committed"] <= modes["pool"]["durable"]
        assert modes["pool"]["committed"] <= modes["pool"]["readable"]
        assert modes["sync"]["durable"] == modes["sync"]["returned"]
    drawn = facts("flush-modes")["seconds"]
    assert drawn["mapped"]["returned"] < drawn["mapped"]["durable"]
    assert drawn["pool"]["returned"] < drawn["pool"]["committed"] < drawn["pool"]["durable"]


def test_group_commit_shows_each_call_and_fewer_syncs_than_calls(tmp_path: Path) -> None:
    for found in (facts("group-commit"), time_lines.one_run(tmp_path / "store")):
        assert len(found["calls"]) == found["requests"] == time_lines.THREADS * time_lines.APPENDS
        assert 1 <= found["syncs"] < found["requests"]
        assert sum(map(len, time_lines.groups(found))) == found["requests"]
    shown = [
        part for part in tree("group-commit").iter(f"{SVG}rect") if part.get("class") in ("a edge", "b edge", "c edge", "e edge")
    ]
    assert len(shown) == time_lines.THREADS * time_lines.APPENDS


def test_recovery_outcomes_are_those_of_the_decision_table() -> None:
    cases = {case["question"]: case for case in facts("recovery-decision")["cases"]}
    assert list(cases) == [question for question, _ in recovery.CASES]
    missing, end, below, torn, lacking, whole = cases.values()
    assert "refused" in missing["heal"]
    assert "refused" in missing["salvage"]
    for case in (end, below):
        assert "refused" in case["heal"]
        assert not case["read"]["complete"]
        assert case["salvage"]["messages"]
    assert below["salvage"]["lost"] > 0
    assert torn["heal"]["messages"] == 15
    assert torn["heal"]["cut"] > 0
    assert lacking["heal"]["undispatched"] == lacking["heal"]["messages"] == 16
    assert whole["heal"] == whole["salvage"]
    assert whole["read"]["messages"] == 16


def test_page_cache_is_empty_after_a_drop_and_holds_what_was_read(tmp_path: Path) -> None:
    states = facts("page-cache")["states"]
    assert list(states) == list(page_cache.STATES)
    written, dropped, reads, query, scan = states.values()
    assert all(sum(cells) > 0 for cells in written.values())
    assert all(sum(cells) == 0 for cells in dropped.values())
    assert 0 < sum(reads["log"]) < len(reads["log"])
    assert sum(query["index"]) > sum(reads["index"])
    assert sum(scan["log"]) > 0
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    assert sum(page_cache.resident(file)) > 0
    with file.open("rb") as opened:
        opened.read(1)
    assert len(page_cache.resident(file)) == page_cache.CELLS


def test_each_figure_that_a_page_shows_exists() -> None:
    shown = [
        name
        for page in draw.HERE.parent.glob("*.md")
        for name in re.findall(r"\(figures/([a-z-]+)\.svg\)", page.read_text("utf-8"))
    ]
    assert {"record", "queue-and-index", "store-layout", "checkpoint"} <= set(shown)
    assert set(shown) <= set(draw.FIGURES)
    assert len(shown) == len(set(shown))
