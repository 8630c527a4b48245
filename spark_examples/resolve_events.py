"""Resolve a table of references into a store that RocketMQ wrote, fetch the messages, and check every answer.

The references: every event by (topic, queue_id, queue_offset), every distinct (topic, issue number) by key, and one per cent
that do not exist. The events themselves, beside the store, say what each answer must be; exit code 1 if one is wrong.

python spark_examples/resolve_events.py
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import explode, lit, sequence

from _session import CORES, Event, events_store, load_events, start_spark, step
from mqstore.spark import fetch, resolve_keys, resolve_offsets

Reference = tuple[str, int, int]
Key = tuple[str, str]

UNKNOWN_TOPIC = "no-such-topic"
REPEAT = 50
RUNS = 3


@dataclass
class References:
    """What is asked, and by the events themselves, what must come back."""

    offsets: list[Reference]
    keys: list[Key]
    bodies: dict[Reference, bytes]
    carriers: dict[Key, list[tuple[int, int]]]


@dataclass
class TopicCount:
    """A line of the table: what a topic holds, and how the references to it fared."""

    messages: int = 0
    bytes: int = 0
    resolved: int = 0
    missing: int = 0
    keys_resolved: int = 0
    keys_missing: int = 0


@dataclass
class Outcome:
    """What one store answered."""

    topics: defaultdict[str, TopicCount] = field(default_factory=lambda: defaultdict(TopicCount))
    fetched: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Timing:
    """One Spark job: rows asked, seconds of each run, bytes of bodies returned."""

    job: str
    rows: int
    seconds: list[float]
    body_bytes: int = 0


def references_to(events: list[Event]) -> References:
    """Every event, every distinct (topic, issue number), and one per cent more of both that do not exist."""
    bodies = {(event.topic, event.queue_id, event.queue_offset): event.body for event in events}
    carriers: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        for issue in dict.fromkeys(event.issues):
            carriers[event.topic, issue].append((event.queue_id, event.queue_offset))
    offsets, keys = list(bodies), list(carriers)
    # Half of what does not exist is in a known topic (past the end of its queue, or a key nobody wrote), half in none.
    for n, (topic, queue_id, _) in enumerate(offsets[::100]):
        offsets.append((topic, queue_id, 1_000_000 + n) if n % 2 else (UNKNOWN_TOPIC, queue_id, n))
    for n, (topic, issue) in enumerate(keys[::100]):
        keys.append((topic, f"no-such-key-{n}") if n % 2 else (UNKNOWN_TOPIC, issue))
    return References(offsets, keys, bodies, dict(carriers))


def offsets_frame(spark: SparkSession, asked: References) -> DataFrame:
    """The references by offset as a table."""
    topic, queue_id, queue_offset = map(list, zip(*asked.offsets, strict=True))
    types = [pa.string(), pa.int32(), pa.int64()]
    columns = [pa.array(values, kind) for values, kind in zip((topic, queue_id, queue_offset), types, strict=True)]
    return spark.createDataFrame(pa.table(columns, names=["topic", "queue_id", "queue_offset"]))


def keys_frame(spark: SparkSession, asked: References) -> DataFrame:
    """The references by key as a table."""
    topic, key = map(list, zip(*asked.keys, strict=True))
    return spark.createDataFrame(pa.table([topic, key], names=["topic", "key"]))


def examine(spark: SparkSession, store: Path, asked: References) -> Outcome:
    """Resolve and fetch everything from one store and compare it with the events."""
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
    """Exactly the references to events have a position; returns it."""
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
    """Each event came back once, from where it was resolved to, with its own body."""
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
    """Each key has the events that carry it, where they were resolved to by offset; what nobody carries has none."""
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


def time_jobs(spark: SparkSession, store: Path, asked: References) -> list[Timing]:
    """Each job once to warm up, then RUNS times, on every reference once and on every reference REPEAT times over."""
    body_bytes = sum(map(len, asked.bodies.values()))
    timings = []
    for times in (1, REPEAT):
        copies = explode(sequence(lit(1), lit(times))).alias("copy")
        offsets = offsets_frame(spark, asked).select("*", copies)
        keys = keys_frame(spark, asked).select("*", copies)
        positions = resolve_offsets(offsets, store)
        jobs = [
            ("resolve_offsets", positions, len(asked.offsets), 0),
            ("resolve_offsets + fetch", fetch(positions, store), len(asked.offsets), body_bytes),
            ("resolve_keys", resolve_keys(keys, store), len(asked.keys), 0),
        ]
        for job, frame, rows, size in jobs:
            with step(f"timing {job}, {rows * times:,} rows, {1 + RUNS} runs"):
                seconds = [_seconds(frame) for _ in range(1 + RUNS)]
            timings.append(Timing(job, rows * times, seconds[1:], size * times))
    return timings


def _seconds(frame: DataFrame) -> float:
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def print_table(outcome: Outcome) -> None:
    """A line a topic, largest first, then the totals."""
    lines = sorted(outcome.topics.items(), key=lambda line: (-line[1].messages, line[0]))
    total = TopicCount()
    for _, count in lines:
        for name, value in vars(count).items():
            setattr(total, name, getattr(total, name) + value)
    width = max(len(topic) for topic, _ in lines)
    print(f"{'':{width}}  {'in the store':>22}  {'by offset':>20}  {'by key':>20}")
    print(f"{'topic':{width}}  {'messages':>10}  {'bytes':>10}" + f"  {'resolved':>10}  {'missing':>8}" * 2)
    for topic, count in [*lines, ("total", total)]:
        print(
            f"{topic:{width}}  {count.messages:>10,}  {count.bytes:>10,}  {count.resolved:>10,}  {count.missing:>8,}"
            f"  {count.keys_resolved:>10,}  {count.keys_missing:>8,}"
        )


def print_timings(timings: list[Timing]) -> None:
    """A line a job, and what was timed."""
    print(f"\n{'Spark job':24}  {'rows':>10}  {'seconds':>8}  {'rows/s':>10}  {'MB/s of bodies':>14}")
    for timing in timings:
        median = statistics.median(timing.seconds)
        rate = f"{timing.body_bytes / median / 1e6:,.0f}" if timing.body_bytes else ""
        print(f"{timing.job:24}  {timing.rows:>10,}  {median:>8.2f}  {timing.rows / median:>10,.0f}  {rate:>14}")
    print(
        f"Median of {RUNS} runs after one to warm up, local[{CORES}], the store in memory; the lower three ask each reference\n"
        f"{REPEAT} times over. Included: planning, both ways between Java and Python, reading, and handing every column\n"
        "to Spark, which drops it there."
    )


def main() -> int:
    """The exit code: 1 if an answer is wrong."""
    spark = start_spark("resolve events")
    stores = {"RocketMQ 5.3.3": events_store()}
    with step("making the table of references"):
        asked = references_to(load_events())
    wrong = 0
    for writer, store in stores.items():
        outcome = examine(spark, store, asked)
        timings = time_jobs(spark, store, asked)
        print(f"\nThe store of {len(asked.bodies):,} events that {writer} wrote, resolved with Spark\n")
        print_table(outcome)
        print_timings(timings)
        wrong += len(outcome.wrong)
        if outcome.wrong:
            print(f"\n{len(outcome.wrong):,} answers are WRONG, the first of them:", *outcome.wrong[:10], sep="\n  ")
        else:
            print(
                f"\nChecked against the events: {outcome.fetched:,} bodies are equal byte for byte, {len(asked.carriers):,} keys "
                f"lead to the events that carry them,\nand what does not exist was reported missing."
            )
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
