"""Writes docs/BENCHMARKS.md, docs/BENCHMARK_ROWS.md and its plot from the results: the last step of `make bench`.

Of each row the newest result with the same parameters counts.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import plot
from rounds import RESULTS, ROOT, is_smoke

DOCUMENT = ROOT / "docs" / "BENCHMARKS.md"
ROWS = "BENCHMARK_ROWS.md"
PLOT = "benchmarks.svg"
ROCKETMQ = "RocketMQ"
#: Prefixes of peers that are mqstore in another form, or the limit: no loss if one of these is faster.
NO_RIVALS = ("mqstore", "limit")

Result = dict[str, Any]

#: The headline rows: row and parameters, and the description.
HEADLINES = {
    "append_sustained (body 1024)": "append 1 KiB messages without a pause, from Rust",
    "append_mt (body 1024, producers 8)": "the same from eight threads",
    "append_tail (body 1024, every 10 us, p99)": "an append every 10 us with the transient store pool, 99th percentile",
    "group_commit (body 1024, producers 32, sync disk)": "32 threads append with `SYNC_FLUSH`",
    "visible_latency (body 100, by thread, gap 300 us, p50)": "from an append until another thread reads the message",
    "read_get (body 1024, messages 32)": "`get` of 32 messages by queue offset",
    "scan_cold (body 1024, threads 1)": "scan of a log that is not in the page cache",
    "resolve_keys (files 1)": "keys to messages, in bulk",
    "recover_killed (written by mqstore, lost nothing)": "open a store of a killed writer",
    "py_append (body 1024, call by position)": "`store.append` from Python",
    "py_durable (body 1024, window 64)": "64 appends and one `wait_durable`, from Python",
    "spark_scan (columns with body)": '`spark.read.format("mqstore")` with bodies',
}

HEAD = f"""# Benchmarks

For whoever compares mqstore with other stores, or makes it faster: the cost of the main calls, beside the limit of the machine
and beside other stores in the same run. `make bench` writes this page
and [every row]({ROWS}): do not edit them.

## Method

- A **limit** is a small program in `benches/limits` that does what the format and the promise demand and nothing else, on files
  of the same kind. A row with another limit names it at the head of its file in `benches/rows` or `benches/compare`.
- A **ratio** says how many times as fast mqstore is: 1.0 is the limit, and more is better. A ratio above 1.0 against a limit
  shows how much the machine varied.
- A figure is the median of the rounds after the first, a ratio that of the ratios. The programs of a row take turns in a round.
- A row that waits for the disk has no ratio (**refused**) if the latency of a sync varied more than 1.5-fold between its rounds.
- Only figures of one row are comparable: rows were measured at different hours. A commit with `-dirty` had uncommitted changes.
- `make bench BENCH=append_burst` measures one row again.
"""

HEAD_OF_ROWS = """# All benchmark rows

Every row of `make bench`, which writes this page: do not edit it. [BENCHMARKS.md](BENCHMARKS.md) has the main rows and
the method.
"""


class Fault(NamedTuple):
    """A target that a row misses, or a store that is faster."""

    #: The share of the target that was reached; 1 if the row was refused.
    reached: float
    text: str


def main() -> None:
    """Writes the pages and the plot, unless this is a smoke run."""
    if is_smoke():
        return
    results = newest(json.loads(line) for line in (RESULTS / "results.jsonl").read_text().splitlines())
    about = [*machine(), measured(results)]
    DOCUMENT.write_text(document(results, about))
    DOCUMENT.with_name(ROWS).write_text(rows_document(results, about))
    DOCUMENT.with_name(PLOT).write_text(plot.of_ratios(ratios(results)))
    print(f"wrote {DOCUMENT.relative_to(ROOT)}: {len(results)} rows, {sum(bool(faults(each)) for each in results)} of them lost")


def newest(results: Iterable[Result]) -> list[Result]:
    """Returns the last result of each row and its parameters, in the order in which they first came."""
    last: dict[str, Result] = {}
    for result in results:
        last[json.dumps([result["row"], result["params"]], sort_keys=True)] = result
    return list(last.values())


def measured(results: list[Result]) -> str:
    """Returns the commits and the numbers of rounds."""
    commits = sorted({result["commit"] for result in results})
    rounds = ", ".join(map(str, sorted({len(result["rounds"]) for result in results})))
    return f"measured: {', '.join(commits)}; rounds of a row: {rounds}"


def document(results: list[Result], about: list[str]) -> str:
    """Returns the page of the main rows."""
    lines = [HEAD, *(f"- {line}" for line in about), "", *headlines(results), "", *lost_rows(results)]
    return "\n".join(lines) + "\n"


def rows_document(results: list[Result], about: list[str]) -> str:
    """Returns the page of all rows."""
    lines = [HEAD_OF_ROWS, *(f"- {line}" for line in about), ""]
    lines += [f"![every ratio against the limit]({PLOT})", "", *losses(results), ""]
    for row in dict.fromkeys(result["row"] for result in results):
        lines += [f"## {row}", "", *table([result for result in results if result["row"] == row]), ""]
    return "\n".join(lines).rstrip() + "\n"


def headlines(results: list[Result]) -> list[str]:
    """Returns the table of the main rows. A row without a result is left out."""
    found = {title(result): result for result in results}
    lines = ["## Main rows", "", "| call | unit | mqstore | limit | other stores | row |", "|-|-|-|-|-|-|"]
    for name, text in HEADLINES.items():
        if result := found.get(name):
            ratio_limit = result["ratio_limit"]
            limit = figure(result["limit"]) + (f" ({ratio(ratio_limit)})" if ratio_limit is not None else "")
            peers = ", ".join(f"{peer}: {of_peer(result, peer)}" for peer in result["peers"] if not peer.startswith(NO_RIVALS))
            cells = [text, result["unit"], figure(result["ours"]), limit, peers, in_rows(result["row"])]
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", "In parentheses: how many times as fast mqstore is."]


def lost_rows(results: list[Result]) -> list[str]:
    """Returns the rows that miss a target, with the miss that is the largest."""
    lines = ["## Rows we lose", "", f"A row has several forms; each miss of each form is in [{ROWS}]({ROWS}#rows-we-lose).", ""]
    lines += ["| row | forms that miss | largest miss |", "|-|-|-|"]
    for row in dict.fromkeys(result["row"] for result in results):
        forms = [result for result in results if result["row"] == row]
        lost = [(fault, result) for result in forms for fault in faults(result)]
        if lost:
            fault, result = min(lost, key=lambda one: one[0].reached)
            count = sum(bool(faults(result)) for result in forms)
            form = f" ({parameters(result)})" if len(forms) > 1 else ""
            lines.append(f"| {row} | {count} of {len(forms)} | {fault.text}{form} |")
    return lines


def in_rows(row: str) -> str:
    """Returns a link to the table of a row."""
    return f"[{row}]({ROWS}#{row})"


def losses(results: list[Result]) -> list[str]:
    """Returns the rows that miss their target, or in which another store is faster."""
    lost = [(result, faults(result)) for result in results]
    lines = [f"- {title(result)}: {'; '.join(fault.text for fault in found)}" for result, found in lost if found]
    return ["## Rows we lose", "", *(lines or ["None."])]


def faults(result: Result) -> list[Fault]:
    """Returns the targets that a result misses."""
    if is_refused(result):
        return [Fault(1, "refused, the latency of a sync varied too much")]
    target, unit, ours, limit = result["target"], result["unit"], result["ours"], result["limit"]
    found = []
    if "ratio_limit" in target and result["ratio_limit"] is not None and result["ratio_limit"] < target["ratio_limit"]:
        text = f"{ratio(result['ratio_limit'])} of the limit, {ratio(target['ratio_limit'])} wanted"
        found.append(Fault(result["ratio_limit"] / target["ratio_limit"], text))
    if "at_most" in target and ours > target["at_most"]:
        text = f"{figure(ours)} {unit}, at most {figure(target['at_most'])} wanted"
        found.append(Fault(target["at_most"] / ours, text))
    if "over_limit" in target and limit is not None and ours > limit + target["over_limit"]:
        text = f"{figure(ours - limit)} {unit} over the limit, at most {figure(target['over_limit'])} wanted"
        found.append(Fault(target["over_limit"] / (ours - limit), text))
    for peer, times in result["ratio_peers"].items():
        if peer.startswith(NO_RIVALS):
            continue
        wanted = target.get("ratio_rocketmq" if peer.startswith(ROCKETMQ) else "ratio_peers", 1.0)
        if times is not None and times < wanted:
            text = f"{ratio(times)} times {peer}" + (f", {ratio(wanted)} wanted" if wanted > 1 else "")
            found.append(Fault(times / wanted, text))
    return found


def is_refused(result: Result) -> bool:
    """Returns true if figures were measured and the ratios are withheld."""
    others = [result["limit"], *result["peers"].values()]
    return (
        result["ratio_limit"] is None and not any(result["ratio_peers"].values()) and any(other is not None for other in others)
    )


def table(results: list[Result]) -> list[str]:
    """Returns the table of a row: one line for each set of parameters."""
    peers = list(dict.fromkeys(peer for result in results for peer in result["peers"]))
    head = ["", "unit", "ours", "best", "limit", "ratio", "wanted", *peers]
    lines = [f"| {' | '.join(head)} |", f"|{'-|' * len(head)}"]
    for result in results:
        cells = [parameters(result), result["unit"], figure(result["ours"]), figure(best(result))]
        cells += [
            figure(result["limit"]),
            "refused" if is_refused(result) else ratio(result["ratio_limit"]),
            wanted(result["target"]),
        ]
        cells += [of_peer(result, peer) for peer in peers]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def of_peer(result: Result, peer: str) -> str:
    """Returns the figure of a peer, and how many times as fast mqstore is."""
    if peer not in result["peers"]:
        return ""
    times = result["ratio_peers"].get(peer)
    return figure(result["peers"][peer]) + (f" ({ratio(times)}x)" if times is not None else "")


def best(result: Result) -> float:
    """Returns the best round of mqstore."""
    choose = max if result["unit"].endswith("/s") else min
    return float(choose(each["ours"] for each in result["rounds"]))


def wanted(target: dict[str, float]) -> str:
    """Returns the target in words."""
    words = {
        "ratio_limit": "ratio >= {}",
        "ratio_rocketmq": "{}x RocketMQ",
        "ratio_peers": "{}x the others",
        "at_most": "<= {}",
        "over_limit": "<= limit + {}",
    }
    is_ratio = {"ratio_limit", "ratio_rocketmq", "ratio_peers"}
    return ", ".join(words[name].format((ratio if name in is_ratio else figure)(bound)) for name, bound in target.items())


def ratios(results: list[Result]) -> list[plot.Bar]:
    """Returns the ratios against the limit, of rows that were not refused."""
    measured = [result for result in results if result["ratio_limit"] is not None]
    return [plot.Bar(title(result), result["ratio_limit"], result["target"].get("ratio_limit")) for result in measured]


def title(result: Result) -> str:
    """Returns row and parameters."""
    return f"{result['row']} ({parameters(result)})" if result["params"] else result["row"]


def parameters(result: Result) -> str:
    """Returns the parameters, as in "body 1024, gap 20 us, p50"."""
    return ", ".join(parameter(name, value) for name, value in result["params"].items())


def parameter(name: str, value: Any) -> str:
    """Returns one parameter with its unit."""
    if name == "quantile":
        return f"p{value * 100:g}"
    words, _, unit = name.rpartition("_")
    if unit in ("us", "ms", "mib"):
        return f"{words} {value} {unit.replace('mib', 'MiB')}" if isinstance(value, int) else f"{words} {value}"
    return f"{name.replace('_', ' ')} {value}"


def figure(value: float | None) -> str:
    """Returns a figure with three digits, or all before the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float | None) -> str:
    """Returns a ratio with two digits after the point, or none if it is large or a round target."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 10 or value in (2, 3, 4, 5, 8) else f"{value:.2f}"


def machine() -> list[str]:
    """Returns the machine and the tools."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?"
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    system = said("df", "--output=fstype", str(ROOT)).splitlines()[-1]
    return [
        f"machine: {os.cpu_count()} x {cpu}, {memory} GiB, Linux {platform.release()}, {system}",
        f"tools: {said('rustc', '--version')}, Python {platform.python_version()}",
    ]


def said(*command: str) -> str:
    """Returns the output of a program."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "?"


if __name__ == "__main__":
    main()
