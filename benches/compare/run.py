"""The rows that are measured from Python: `python benches/compare/run.py [--check] [ROW...]`, or `make bench`.

With `--check` it measures nothing, and fails where there is no such row, of Python or of Rust.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import cli
import consume
import delays
import export
import follow_latency
import groups
import py_append
import py_append_batch
import py_durable
import py_query
import py_read_batch
import recover_killed
import refresh
import search
import spark_batched
import spark_resolve
import spark_scan
import trim
from rounds import Rust, is_smoke

ROWS: dict[str, Callable[[Rust | None], None]] = {
    "cli_find": cli.run_find,
    "cli_info": cli.run_info,
    "consume": consume.batches,
    "delay_burst": delays.burst,
    "delay_lateness": delays.lateness,
    "export": export.run,
    "follow_latency": follow_latency.run,
    "get_ack": consume.single,
    "groups_commit": groups.run_commits,
    "groups_open": groups.run_open,
    "py_append": py_append.run,
    "py_append_batch": py_append_batch.run,
    "py_durable": py_durable.run,
    "py_query": py_query.bodies,
    "py_read_batch": py_read_batch.run,
    "py_resolve_keys": py_query.places,
    "recover_killed": recover_killed.run,
    "refresh": refresh.run,
    "search": search.run,
    "spark_batch_cost": spark_batched.batch_cost,
    "spark_batched": spark_batched.batched,
    "spark_cold": spark_scan.cold,
    "spark_count": spark_scan.count,
    "spark_fetch": spark_resolve.fetch,
    "spark_resolve_keys": spark_resolve.keys,
    "spark_resolve_offsets": spark_resolve.offsets,
    "spark_scan": spark_scan.scan,
    "timer_lateness": delays.timer_lateness,
    "trim": trim.run,
    "trim_beside": trim.beside,
}
#: The rows that `cargo bench` runs.
ROWS_OF_RUST = {path.stem for path in (Path(__file__).parents[1] / "rows").glob("*.rs")} - {"mod", "serve"}


def main(wanted: list[str]) -> None:
    """Runs the requested rows, or all without a name."""
    is_check = wanted[:1] == ["--check"]
    wanted = wanted[is_check:]
    unknown = set(wanted) - ROWS_OF_RUST - set(ROWS)
    if unknown:
        sys.exit(f"no row is called {', '.join(sorted(unknown))}; there are {', '.join(sorted(ROWS_OF_RUST | set(ROWS)))}")
    rows = [run for name, run in ROWS.items() if not wanted or name in wanted]
    if is_check or not rows:
        return
    rust = None if is_smoke() else Rust()
    try:
        for run in rows:
            run(rust)
    finally:
        if rust:
            rust.close()


if __name__ == "__main__":
    main(sys.argv[1:])
