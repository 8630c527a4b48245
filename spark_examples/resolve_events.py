"""Resolves a table of references in a store of RocketMQ and in a store of mqstore, and checks every result.

The references: every event by (topic, queue_id, queue_offset), every distinct (topic, issue number) by key, and one per cent
that do not exist. The events themselves, beside the stores, say what each answer must be. The messages of both stores are fetched
and compared column by column. RocketMQ's store is exported to Parquet and read back. The events are also written once in each
write mode. Our store stays in target/spark_examples/store, for the command line. Exit code 1 if an answer is wrong or a column
differs that must not.

python spark_examples/resolve_events.py
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, count_if, explode, lit, map_entries, max_by, sequence, sort_array

import mqstore
import mqstore.files
from _modes import print_modes, write_in_each_mode
from _session import CORES, WORK, Event, events_store, load_events, start_spark, step
from mqstore.spark import fetch, resolve_keys, resolve_offsets

Reference = tuple[str, int, int]
Key = tuple[str, str]

UNKNOWN_TOPIC = "no-such-topic"
REPEAT = 50
RUNS = 3
DISTINCT = 200_000
ROCKETMQ = "RocketMQ 5.3.3"
OURS = "mqstore"
# Columns that depend on the time and place of the write.
OWN_COLUMNS = {"physical_offset", "store_time", "message_id", "born_host", "store_host"}


@dataclass
class References:
    """The references, and the expected results."""

    offsets: list[Reference]
    keys: list[Key]
    bodies: dict[Reference, bytes]
    carriers: dict[Key, list[tuple[int, int]]]


@dataclass
class TopicCount:
    """A line of the table: the contents of a topic, and the number of resolved references to it."""

    messages: int = 0
    bytes: int = 0
    resolved: int = 0
    missing: int = 0
    keys_resolved: int = 0
    keys_missing: int = 0


@dataclass
class Outcome:
    """The results of one store."""

    topics: defaultdict[str, TopicCount] = field(default_factory=lambda: defaultdict(TopicCount))
    fetched: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Timing:
    """The measurements of a Spark job: rows, seconds of each run, bytes of returned bodies."""

    job: str
    rows: int
    seconds: list[float]
    body_bytes: int = 0


@dataclass
class ColumnOf:
    """A column of both stores: its values in one message, and the number of messages in which they differ."""

    name: str
    rocketmq: object
    ours: object
    differing: int


def write_store(events: list[Event], path: Path) -> None:
    """Writes the events to a store of mqstore, with the fields that RocketMQ got."""
    table = pa.table(
        {
            "topic": [event.topic for event in events],
            "queue_id": [event.queue_id for event in events],
            "tags": [event.tag for event in events],
            "keys": [list(event.issues) for event in events],
            "unique_key": [event.unique_key for event in events],
            "born_time": pa.array([event.time_ms for event in events], pa.timestamp("ms", "UTC")),
            "body": [event.body for event in events],
        }
    )
    with mqstore.open(path, mode="x") as store:
        store.append_batch(table)


def references_to(events: list[Event]) -> References:
    """Returns references to all events and all (topic, issue number), and one per cent more of both that do not exist."""
    bodies = {(event.topic, event.queue_id, event.queue_offset): event.body for event in events}
    carriers: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        for issue in dict.fromkeys(event.issues):
            carriers[event.topic, issue].append((event.queue_id, event.queue_offset))
    offsets, keys = list(bodies), list(carriers)
    # Half of the absent references have a known topic (past the end of its queue, or an unknown key), half do not.
    for n, (topic, queue_id, _) in enumerate(offsets[::100]):
        offsets.append((topic, queue_id, 1_000_000 + n) if n % 2 else (UNKNOWN_TOPIC, queue_id, n))
    for n, (topic, issue) in enumerate(keys[::100]):
        keys.append((topic, f"no-such-key-{n}") if n % 2 else (UNKNOWN_TOPIC, issue))
    return References(offsets, keys, bodies, dict(carriers))


def offsets_frame(spark: SparkSession, asked: References) -> DataFrame:
    """Returns the references by offset as a frame."""
    topic, queue_id, queue_offset = map(list, zip(*asked.offsets, strict=True))
    types = [pa.string(), pa.int32(), pa.int64()]
    columns = [pa.array(values, kind) for values, kind in zip((topic, queue_id, queue_offset), types, strict=True)]
    return spark.createDataFrame(pa.table(columns, names=["topic", "queue_id", "queue_offset"]))


def keys_frame(spark: SparkSession, asked: References) -> DataFrame:
    """Returns the references by key as a frame."""
    topic, key = map(list, zip(*asked.keys, strict=True))
    return spark.createDataFrame(pa.table([topic, key], names=["topic", "key"]))


def examine(spark: SparkSession, store: Path, asked: References) -> Outcome:
    """Resolves and fetches everything in one store and compares it with the events."""
    outcome = Outcome()
    for (topic, _, _), body in asked.bodies.items():
        outcome.topics[topic].messages += 1
        outcome.topics[topic].bytes += len(body)
    with step(f"resolving {len(asked.offsets):,} references by offset"):
        resolved = resolve_offsets(offsets_frame(spark, asked), store)
        positions = check_positions(outcome, asked, resolved.toArrow().to_pylist())
    with step("fetching the messages"):
        messages = fetch(resolved, store, columns=["topic", "queue_id", "queue_offset", "physical_offset", "body"])
        check_bodies(outcome, asked, positions, messages.toArrow().to_pylist())
    with step(f"resolving {len(asked.keys):,} references by key"):
        hits = resolve_keys(keys_frame(spark, asked), store)
        check_hits(outcome, asked, positions, hits.toArrow().to_pylist())
    return outcome


def check_positions(outcome: Outcome, asked: References, rows: list[dict[str, Any]]) -> dict[Reference, int]:
    """Checks that exactly the references to events have a position, and returns the positions."""
    positions = {}
    for row in rows:
        reference = row["topic"], row["queue_id"], row["queue_offset"]
        if row["physical_offset"] is None:
            outcome.topics[row["topic"]].missing += 1
        else:
            outcome.topics[row["topic"]].resolved += 1
            positions[reference] = row["physical_offset"]
        if (row["physical_offset"] is not None) != (reference in asked.bodies):
            outcome.wrong.append(f"{reference} resolved to {row['physical_offset']}")
    if Counter((row["topic"], row["queue_id"], row["queue_offset"]) for row in rows) != Counter(asked.offsets):
        outcome.wrong.append(f"{len(asked.offsets)} references were asked, others came back ({len(rows)})")
    return positions


def check_bodies(outcome: Outcome, asked: References, positions: dict[Reference, int], rows: list[dict[str, Any]]) -> None:
    """Checks that each event was fetched once, from its position, with its own body."""
    outcome.fetched = len(rows)
    for row in rows:
        reference = row["topic"], row["queue_id"], row["queue_offset"]
        if row["body"] != asked.bodies.get(reference):
            outcome.wrong.append(f"the body of {reference} is not the event's")
        if row["physical_offset"] != positions.get(reference):
            outcome.wrong.append(f"{reference} was fetched from {row['physical_offset']}")
    if len(rows) != len(asked.bodies):
        outcome.wrong.append(f"{len(asked.bodies)} messages were asked, {len(rows)} came back")


def check_hits(outcome: Outcome, asked: References, positions: dict[Reference, int], rows: list[dict[str, Any]]) -> None:
    """Checks that each key has its events, at the positions resolved by offset, and that unknown keys have no hit."""
    for row in rows:
        topic, key, hits = row["topic"], row["key"], row["hits"]
        if hits is None:
            outcome.topics[topic].keys_missing += 1
        else:
            outcome.topics[topic].keys_resolved += 1
        carriers = asked.carriers.get((topic, key))
        expected = [(*at, positions.get((topic, *at))) for at in carriers] if carriers else None
        found = hits and [(hit["queue_id"], hit["queue_offset"], hit["physical_offset"]) for hit in hits]
        if found != expected:
            outcome.wrong.append(f"key {key} of topic {topic} gave {found}, not {expected}")
    if Counter((row["topic"], row["key"]) for row in rows) != Counter(asked.keys):
        outcome.wrong.append(f"{len(asked.keys)} keys were asked, others came back ({len(rows)})")


def jobs_on(store: Path, offsets: DataFrame, keys: DataFrame) -> dict[str, DataFrame]:
    """Returns the jobs to measure."""
    positions = resolve_offsets(offsets, store)
    return {
        "resolve_offsets": positions,
        "resolve_offsets + fetch": fetch(positions, store),
        "resolve_keys": resolve_keys(keys, store),
    }


def time_jobs(spark: SparkSession, stores: dict[str, Path], asked: References) -> dict[str, list[Timing]]:
    """Measures each job, after one run to warm up, RUNS times, on all references once and REPEAT times over.

    The stores alternate, so that neither runs on a warmer machine.
    """
    timings: dict[str, list[Timing]] = {writer: [] for writer in stores}
    for times in (1, REPEAT):
        copies = explode(sequence(lit(1), lit(times))).alias("copy")
        offsets = offsets_frame(spark, asked).select("*", copies)
        keys = keys_frame(spark, asked).select("*", copies)
        frames = {writer: jobs_on(store, offsets, keys) for writer, store in stores.items()}
        for job in frames[ROCKETMQ]:
            rows = times * len(asked.keys if job == "resolve_keys" else asked.offsets)
            body_bytes = times * sum(map(len, asked.bodies.values())) if "fetch" in job else 0
            with step(f"timing {job}, {rows:,} rows, {1 + RUNS} runs a store"):
                runs = [{writer: _seconds(own[job]) for writer, own in frames.items()} for _ in range(1 + RUNS)]
            for writer in stores:
                timings[writer].append(Timing(job, rows, [run[writer] for run in runs[1:]], body_bytes))
    return timings


def time_distinct_keys(spark: SparkSession, path: Path) -> Timing:
    """Measures DISTINCT messages with a key each, and looks up each key once, in random order, so that no row repeats another."""
    with mqstore.open(path, mode="x") as store:
        for first in range(0, DISTINCT, 10_000):
            store.append_batch([("orders", b"", None, [f"order-{number}"]) for number in range(first, first + 10_000)])
    keys = spark.range(0, DISTINCT, 1, CORES).selectExpr("'orders' AS topic", f"concat('order-', id * 7919 % {DISTINCT}) AS key")
    hits = resolve_keys(keys, path)
    with step(f"timing resolve_keys, {DISTINCT:,} distinct keys, {1 + RUNS} runs"):
        return Timing("resolve_keys, distinct", DISTINCT, [_seconds(hits) for _ in range(1 + RUNS)][1:])


def _seconds(frame: DataFrame) -> float:
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def compare(spark: SparkSession, rocketmq: Path, ours: Path, asked: References) -> list[ColumnOf]:
    """Compares all messages of both stores, joined by topic, queue id and queue offset, column by column."""
    with step("comparing the messages of both stores"):
        theirs, own = (fetch(resolve_offsets(offsets_frame(spark, asked), store), store) for store in (rocketmq, ours))
        names = theirs.columns
        theirs, own = (frame.toDF(*(f"{side}_{name}" for name in names)) for side, frame in (("t", theirs), ("o", own)))
        same_place = [col(f"t_{name}") == col(f"o_{name}") for name in ("topic", "queue_id", "queue_offset")]
        differing = [count_if(~comparable(f"t_{name}").eqNullSafe(comparable(f"o_{name}"))).alias(f"d_{name}") for name in names]
        latest = [max_by(name, "t_physical_offset").alias(name) for name in (*theirs.columns, *own.columns)]
        row = theirs.join(own, same_place, "full_outer").agg(*differing, *latest).toArrow().to_pylist()[0]
    return [ColumnOf(name, row[f"t_{name}"], row[f"o_{name}"], row[f"d_{name}"]) for name in names]


def comparable(name: str) -> Column:
    """Converts maps, which Spark does not compare."""
    return sort_array(map_entries(name)) if name.endswith("_properties") else col(name)


def export_and_read_back(store: Path, scratch: Path, events: list[Event]) -> tuple[mqstore.files.Exported, list[str]]:
    """Scans the store, exports it to Parquet, reads that back with pyarrow, and returns the differences."""
    with mqstore.open(store) as opened:
        exported = opened.export(scratch / "events.parquet")
        scanned = opened.scan().to_arrow()
    wrong = []
    if not (exported.complete and pq.read_table(exported.path).equals(scanned)):
        wrong.append("what was exported to Parquet is not what a scan gives")
    names = ("topic", "queue_id", "queue_offset", "body")
    found = Counter(zip(*(scanned[name].to_pylist() for name in names), strict=True))
    if found != Counter((event.topic, event.queue_id, event.queue_offset, event.body) for event in events):
        wrong.append("what a scan gives is not the events")
    return exported, wrong


def print_table(outcomes: dict[str, Outcome]) -> None:
    """Prints a line for each topic, largest first, and the totals, with the results of both stores."""
    totals = {writer: TopicCount() for writer in outcomes}
    for writer, total in totals.items():
        for counted in outcomes[writer].topics.values():
            for name, value in vars(counted).items():
                setattr(total, name, getattr(total, name) + value)
    first = outcomes[ROCKETMQ].topics
    width = max(map(len, first))
    print(f"{'':{width}}  {'':18}" + "".join(f"  {writer:^37}" for writer in outcomes))
    print(f"{'':{width}}  {'events':^18}" + f"  {'by offset':^17}  {'by key':^18}" * len(outcomes))
    print(f"{'topic':{width}}  {'count':>7}  {'bytes':>9}" + f"  {'resolved':>8}  {'missing':>7}" * 2 * len(outcomes))
    for topic in [*sorted(first, key=lambda topic: (-first[topic].messages, topic)), "total"]:
        counts = [totals[writer] if topic == "total" else outcome.topics[topic] for writer, outcome in outcomes.items()]
        line = f"{topic:{width}}  {counts[0].messages:>7,}  {counts[0].bytes:>9,}"
        for count in counts:
            line += f"  {count.resolved:>8,}  {count.missing:>7,}  {count.keys_resolved:>8,}  {count.keys_missing:>7,}"
        print(line)


def print_timings(timings: dict[str, list[Timing]]) -> None:
    """Prints a line for each job, and what was measured."""
    print(f"\n{'':36}" + "".join(f"  {writer:^32}" for writer in timings))
    print(f"{'Spark job':24}  {'rows':>10}" + f"  {'seconds':>8}  {'rows/s':>10}  {'bodies MB/s':>11}" * len(timings))
    for jobs in zip(*timings.values(), strict=True):
        line = f"{jobs[0].job:24}  {jobs[0].rows:>10,}"
        for timing in jobs:
            median = statistics.median(timing.seconds)
            rate = f"{timing.body_bytes / median / 1e6:,.0f}" if timing.body_bytes else ""
            line += f"  {median:>8.2f}  {timing.rows / median:>10,.0f}  {rate:>11}"
        print(line)
    print(
        f"Median of {RUNS} runs after one to warm up, local[{CORES}], the stores in memory; the lower three ask each reference\n"
        f"{REPEAT} times over. Included: planning, both ways between Java and Python, reading, and handing every column\n"
        "to Spark, which drops it there."
    )


def print_distinct(timing: Timing) -> None:
    """Returns one line of the table."""
    seconds = statistics.median(timing.seconds)
    print(
        f"Keys that nobody asks for twice, each of another message of ours: {timing.rows:,} in {seconds:.2f} s, "
        f"{timing.rows / seconds:,.0f} keys/s."
    )


def print_columns(columns: list[ColumnOf]) -> None:
    """Prints a line for each column: its value in the newest message of both stores, and the number of differences."""
    print(f"\n{'column':28}  {'newest in ' + ROCKETMQ + chr(39) + 's':>34}  {'and in ours':>34}  differing")
    for column in columns:
        rocketmq, ours = ("".join(str(value).split("\n"))[:34] for value in (column.rocketmq, column.ours))
        note = " (may)" if column.name in OWN_COLUMNS else ""
        print(f"{column.name:28}  {rocketmq:>34}  {ours:>34}  {column.differing:>9,}{note}")


def main() -> int:
    """Runs everything and returns the exit code, 1 for a wrong result."""
    spark = start_spark("resolve events")
    with step("making the table of references"):
        events = load_events()
        asked = references_to(events)
    stores = {ROCKETMQ: events_store(), OURS: WORK / "store"}
    shutil.rmtree(stores[OURS], ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=WORK) as scratch:
        with step(f"writing {len(events):,} events as a store of our own"):
            write_store(events, stores[OURS])
        with step("writing them once in each write mode, one by one"):
            modes = write_in_each_mode(events, Path(scratch))
        outcomes = {}
        for writer, store in stores.items():
            print(f"-- the store that {writer} wrote", file=sys.stderr)
            outcomes[writer] = examine(spark, store, asked)
        timings = time_jobs(spark, stores, asked)
        distinct = time_distinct_keys(spark, Path(scratch) / "distinct")
        columns = compare(spark, stores[ROCKETMQ], stores[OURS], asked)
        with step("exporting the store that RocketMQ wrote to Parquet, and reading it back"):
            exported, wrong = export_and_read_back(stores[ROCKETMQ], Path(scratch), events)
    spark.stop()

    print(f"\n{len(events):,} events in two stores, resolved with Spark: written by RocketMQ and by mqstore\n")
    print_table(outcomes)
    print_timings(timings)
    print_distinct(distinct)
    print_columns(columns)
    print_modes(modes)
    wrong += [f"{writer}: {answer}" for writer, outcome in outcomes.items() for answer in outcome.wrong]
    differing = [column for column in columns if column.differing and column.name not in OWN_COLUMNS]
    wrong += [
        f"the store of {each.mode.threads} threads with {each.mode.name} misses events" for each in modes if not each.is_complete
    ]
    wrong += [f"{column.name} differs in {column.differing:,} messages" for column in differing]
    if wrong:
        print(f"\n{len(wrong):,} answers are WRONG, the first of them:", *wrong[:10], sep="\n  ")
        return 1
    print(
        f"\nChecked against the events, in both stores: {outcomes[OURS].fetched:,} bodies are equal byte for byte, "
        f"{len(asked.carriers):,} keys lead to the\nevents that carry them, and what does not exist was reported missing. "
        f"The {len(events):,} messages of the two are equal in {len(columns) - len(OWN_COLUMNS)}\nof {len(columns)} columns, "
        f"and may differ in {', '.join(sorted(OWN_COLUMNS))}.\n"
        f"RocketMQ's store was scanned and exported to Parquet ({exported.rows:,} rows, {exported.bytes:,} bytes), "
        "and\nread back equal."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
