"""Writes docs/BENCHMARKS.md and its plot from the results: `python benches/compare/page.py`, the last step of `make bench`.

Of each row the newest result with the same parameters counts.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import plot
from rounds import RESULTS, ROOT, is_smoke

DOCUMENT = ROOT / "docs" / "BENCHMARKS.md"
PLOT = "benchmarks.svg"
ROCKETMQ = "RocketMQ"
#: How peers are named that are ours in another form, or the limit: to lose to one of these is no loss.
NO_RIVALS = ("mqstore", "limit")

Result = dict[str, Any]

HEAD = """# Benchmarks

What each call costs, beside the limit of this machine and beside other stores, all in the same run. `make bench` writes this
page; do not edit it. `make bench BENCH=append_burst` measures one row again, and the page keeps the newest result of each.

- **limit**: a small program in `benches/limits` that does what the format and the promise demand and nothing else, on files of
  the same kind. Where a row has another limit, the head of its file in `benches/rows` or `benches/compare` says so.
- **ratio**: how many times as good ours is; 1.0 is at the limit, and more is better. It is the median of what each round says.
- Figures are medians of the rounds after the first, which is dropped. All that is in a row takes turns within each round.
- Where the limit is one of `benches/limits`, a ratio above 1.0 says by how much the machine varied, and no more.
- A row that waits for the disk is **refused** if the latency of a sync varied more than 1.5-fold between its rounds: its
  ratios would be those of two disks.
- Compare only figures of one row: the machine of another hour is another machine.
"""


def main() -> None:
    """Writes both files, but not of a smoke run."""
    if is_smoke():
        return
    results = newest(json.loads(line) for line in (RESULTS / "results.jsonl").read_text().splitlines())
    DOCUMENT.write_text(document(results, machine()))
    DOCUMENT.with_name(PLOT).write_text(plot.of_ratios(ratios(results)))
    print(f"wrote {DOCUMENT.relative_to(ROOT)}: {len(results)} rows, {sum(bool(faults(each)) for each in results)} of them lost")


def newest(results: Iterable[Result]) -> list[Result]:
    """The last one of each row and its parameters, in the order in which they first came."""
    last: dict[str, Result] = {}
    for result in results:
        last[json.dumps([result["row"], result["params"]], sort_keys=True)] = result
    return list(last.values())


def document(results: list[Result], about: list[str]) -> str:
    """The page."""
    commits = sorted({result["commit"] for result in results})
    rounds = ", ".join(map(str, sorted({len(result["rounds"]) for result in results})))
    lines = [HEAD, *(f"- {line}" for line in about), f"- measured: {', '.join(commits)}; rounds of a row: {rounds}", ""]
    lines += [f"![every ratio against the limit]({PLOT})", "", *losses(results), ""]
    for row in dict.fromkeys(result["row"] for result in results):
        lines += [f"## {row}", "", *table([result for result in results if result["row"] == row]), ""]
    return "\n".join(lines).rstrip() + "\n"


def losses(results: list[Result]) -> list[str]:
    """The rows that miss their target, or that another store wins."""
    lost = [(result, faults(result)) for result in results]
    lines = [f"- {title(result)}: {'; '.join(found)}" for result, found in lost if found]
    return ["## Rows we lose", "", *(lines or ["None."])]


def faults(result: Result) -> list[str]:
    """What is not as it should be."""
    if is_refused(result):
        return ["refused, the latency of a sync varied too much"]
    target, unit, ours, limit = result["target"], result["unit"], result["ours"], result["limit"]
    found = []
    if "ratio_limit" in target and result["ratio_limit"] is not None and result["ratio_limit"] < target["ratio_limit"]:
        found.append(f"{ratio(result['ratio_limit'])} of the limit, {ratio(target['ratio_limit'])} wanted")
    if "at_most" in target and ours > target["at_most"]:
        found.append(f"{figure(ours)} {unit}, at most {figure(target['at_most'])} wanted")
    if "over_limit" in target and limit is not None and ours > limit + target["over_limit"]:
        found.append(f"{figure(ours - limit)} {unit} over the limit, at most {figure(target['over_limit'])} wanted")
    for peer, times in result["ratio_peers"].items():
        if peer.startswith(NO_RIVALS):
            continue
        wanted = target.get("ratio_rocketmq" if peer.startswith(ROCKETMQ) else "ratio_peers", 1.0)
        if times is not None and times < wanted:
            found.append(f"{ratio(times)} times {peer}" + (f", {ratio(wanted)} wanted" if wanted > 1 else ""))
    return found


def is_refused(result: Result) -> bool:
    """Whether its figures were measured and its ratios withheld."""
    others = [result["limit"], *result["peers"].values()]
    return (
        result["ratio_limit"] is None and not any(result["ratio_peers"].values()) and any(other is not None for other in others)
    )


def table(results: list[Result]) -> list[str]:
    """One line for each set of parameters."""
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
    """Its figure, and how many times as good ours is."""
    if peer not in result["peers"]:
        return ""
    times = result["ratio_peers"].get(peer)
    return figure(result["peers"][peer]) + (f" ({ratio(times)}x)" if times is not None else "")


def best(result: Result) -> float:
    """The best round of ours."""
    choose = max if result["unit"].endswith("/s") else min
    return float(choose(each["ours"] for each in result["rounds"]))


def wanted(target: dict[str, float]) -> str:
    """The target in words."""
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
    """Those against the limit, of rows that were not refused."""
    measured = [result for result in results if result["ratio_limit"] is not None]
    return [plot.Bar(title(result), result["ratio_limit"], result["target"].get("ratio_limit")) for result in measured]


def title(result: Result) -> str:
    """Row and parameters."""
    return f"{result['row']} ({parameters(result)})" if result["params"] else result["row"]


def parameters(result: Result) -> str:
    """As in "body 1024, gap 20 us, p50"."""
    return ", ".join(parameter(name, value) for name, value in result["params"].items())


def parameter(name: str, value: Any) -> str:
    """One of them."""
    if name == "quantile":
        return f"p{value * 100:g}"
    words, _, unit = name.rpartition("_")
    if unit in ("us", "ms", "mib"):
        return f"{words} {value} {unit.replace('mib', 'MiB')}" if isinstance(value, int) else f"{words} {value}"
    return f"{name.replace('_', ' ')} {value}"


def figure(value: float | None) -> str:
    """With three digits or all before the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float | None) -> str:
    """With two digits after the point, or none where they say nothing."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 10 or value in (2, 3, 4, 5, 8) else f"{value:.2f}"


def machine() -> list[str]:
    """The machine and the tools, for the page."""
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
    """What a program printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "?"


if __name__ == "__main__":
    main()
