"""The page of `make bench`, from results that are given, and its rows, each once."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import page
import plot
import pytest

ROOT = Path(__file__).parents[2]
MACHINE = ["machine: a test machine"]


def result(row: str, ours: float, limit: float | None = None, **other: object) -> page.Result:
    """One row of the results: a time, of which less is better."""
    peers = other.pop("peers", {})
    assert isinstance(peers, dict)
    return {
        "row": row,
        "params": {"body": 100},
        "ours": ours,
        "limit": limit,
        "peers": peers,
        "unit": "ns a message",
        "ratio_limit": limit / ours if limit else None,
        "ratio_peers": {name: figure / ours for name, figure in peers.items()},
        "target": {},
        "rounds": [{"ours": ours, "sync_us": 100.0, "wake_us": 5.0}],
        "commit": "abc1234",
    } | other


def lost(*results: page.Result) -> list[str]:
    return page.losses(list(results))[2:]


def test_a_row_that_reaches_what_is_wanted_and_beats_its_peers_is_not_lost():
    assert lost(result("append", 100, 80, target={"ratio_limit": 0.8, "at_most": 100, "over_limit": 20})) == ["None."]
    assert lost(result("append", 100, peers={"LMDB": 101, "RocketMQ 5.5.1": 500}, target={"ratio_rocketmq": 5})) == ["None."]
    assert lost(result("append", 100, peers={"mqstore with the pool": 50, "limit with a mutex": 50})) == ["None."]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (result("append", 100, 79, target={"ratio_limit": 0.8}), "0.79 of the limit, 0.80 wanted"),
        (result("append", 100, target={"at_most": 99}), "100 ns a message, at most 99 wanted"),
        (result("append", 100, 80, target={"over_limit": 19}), "20 ns a message over the limit, at most 19 wanted"),
        (result("append", 100, peers={"LMDB": 50}), "0.50 times LMDB"),
        (
            result("append", 100, peers={"RocketMQ 5.5.1": 490}, target={"ratio_rocketmq": 5}),
            "4.90 times RocketMQ 5.5.1, 5 wanted",
        ),
    ],
)
def test_a_row_that_misses_says_by_how_much(row: page.Result, says: str):
    assert lost(row) == [f"- append (body 100): {says}"]


def test_a_refused_row_shows_its_figures_and_no_ratio():
    row = result("group_commit", 100, 80, ratio_limit=None)
    assert lost(row) == ["- group_commit (body 100): refused, the latency of a sync varied too much"]
    assert "| body 100 | ns a message | 100 | 100 | 80 | refused |  |" in page.rows_document([row], MACHINE)


def test_a_later_result_replaces_an_earlier_one_of_the_same_parameters():
    first, second = result("append", 100, 80), result("append", 90, 80)
    assert page.newest([first, result("dispatch", 5), second]) == [second, result("dispatch", 5)]


def test_page_of_rows_has_a_table_for_each_row_with_every_peer():
    text = page.rows_document([result("append", 100, 80, peers={"LMDB": 250}), result("counts", 5)], MACHINE)
    assert "## append\n\n|  | unit | ours | best | limit | ratio | wanted | LMDB |" in text
    assert "| body 100 | ns a message | 100 | 100 | 80 | 0.80 |  | 250 (2.50x) |" in text
    assert "| body 100 | ns a message | 5 | 5 |  |  |  |" in text


def test_pages_name_the_machine_the_commits_and_the_rounds():
    once = result("append", 100)
    about = [*MACHINE, page.measured([once, result("counts", 5, rounds=3 * once["rounds"])])]
    for text in (page.document([once], about), page.rows_document([once], about)):
        assert f"- {MACHINE[0]}\n- measured: abc1234; rounds of a row: 1, 3\n" in text


def test_page_has_the_main_rows_with_limit_and_rivals():
    row = result("resolve_keys", 100, 80, params={"files": 1}, peers={"LMDB": 250, "mqstore with the pool": 90})
    lines = page.headlines([row, result("append", 5)])
    assert lines[4:-2] == [
        "| keys to messages, in bulk | ns a message | 100 | 80 (0.80) | LMDB: 250 (2.50x)"
        " | [resolve_keys](BENCHMARK_ROWS.md#resolve_keys) |"
    ]


def test_each_lost_row_is_listed_once_with_its_largest_miss():
    forms = [result("append", 100, 79 - 10 * n, params={"body": n}, target={"ratio_limit": 0.8}) for n in range(3)]
    lines = page.lost_rows([*forms, result("append", 100, 80, target={"ratio_limit": 0.8}), result("dispatch", 5)])
    assert lines[6:] == ["| append | 3 of 4 | 0.59 of the limit, 0.80 wanted (body 2) |"]


def test_each_main_row_has_the_figures_of_the_page_of_rows():
    pages = {name: (ROOT / "docs" / name).read_text() for name in ("BENCHMARKS.md", "BENCHMARK_ROWS.md")}
    for name, text in page.HEADLINES.items():
        row, _, form = name.removesuffix(")").partition(" (")
        section = pages["BENCHMARK_ROWS.md"].split(f"## {row}\n")[1].split("\n## ")[0]
        cells = next(line for line in section.splitlines() if line.startswith(f"| {form} |")).split(" | ")
        main = next(line for line in pages["BENCHMARKS.md"].splitlines() if line.startswith(f"| {text} |")).split(" | ")
        assert [main[1], main[2], main[3].split(" ")[0]] == [cells[1], cells[2], cells[4]]


def test_parameters_are_named_with_their_units():
    assert page.parameter("gap_us", 20) == "gap 20 us"
    assert page.parameter("quantile", 0.999) == "p99.9"
    assert page.parameter("sync_ms", "disk") == "sync disk"


def test_the_plot_has_a_bar_for_each_ratio_and_a_line_at_the_limit():
    bars = [plot.Bar("append <1 KiB>", 0.5, 0.8), plot.Bar("dispatch", 1.5)]
    root = ElementTree.fromstring(plot.of_ratios(bars))
    space = "{http://www.w3.org/2000/svg}"
    drawn = [float(rect.attrib["width"]) for rect in root.iter(f"{space}rect")][1:]
    assert len(drawn) == 2
    assert drawn[0] < drawn[1]
    texts = [text.text for text in root.iter(f"{space}text")]
    assert {"append <1 KiB>", "dispatch", "1"} <= set(texts)


def test_a_ratio_beyond_the_axis_ends_at_its_end():
    bars = [plot.Bar("far above", 1e6), plot.Bar("at the end", 100), plot.Bar("far below", 1e-6)]
    root = ElementTree.fromstring(plot.of_ratios(bars))
    drawn = [float(rect.attrib["width"]) for rect in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert drawn[0] == drawn[1] > drawn[2] == 0


@pytest.mark.slow
def test_each_row_from_python_runs_once_with_tiny_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("BENCH_SMOKE", "1")
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path))
    subprocess.run([sys.executable, ROOT / "benches" / "compare" / "run.py"], check=True, stdout=subprocess.DEVNULL)
    measured = [json.loads(line) for line in (tmp_path / "smoke.jsonl").read_text().splitlines()]
    rows = {
        "export",
        "follow_latency",
        "py_append",
        "py_append_batch",
        "py_durable",
        "py_query",
        "py_read_batch",
        "py_resolve_keys",
        "recover_killed",
        "refresh",
        "search",
    }
    rows |= {"spark_scan", "spark_count", "spark_cold", "spark_resolve_offsets", "spark_resolve_keys", "spark_fetch"}
    rows |= {"spark_batched", "spark_batch_cost"}
    rows |= {"cli_find", "cli_info"}
    rows |= {"consume", "get_ack", "groups_commit", "groups_open", "delay_lateness", "delay_burst"}
    rows |= {"timer_lateness", "trim", "trim_beside"}
    assert {row["row"] for row in measured} == rows
    assert all(row["ours"] > 0 for row in measured)
