"""The cost of reading: each call on the store of 7,865 events, compared with the limit of any reader on this machine.

Prints a table and asserts nothing. Each figure is the median of five rounds after one to warm up; the calls take turns, so that a
machine that slows down slows all of them. Run it by `make bench`.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import mqstore

EVENTS = Path(__file__).parent.parent / "tests" / "golden" / "533_events.tar.xz"
UNPACK = EVENTS.parent.parent / "data" / "unpack.py"
ROUNDS = 5


def measures(store: mqstore.Store, path: Path) -> dict[str, tuple[int, Callable[[], object]]]:
    """Returns name -> (rows of one call, call)."""
    queues = [queue for topic in store.topics.values() for queue in topic.queues if len(queue)]
    messages = [message for queue in queues for message in queue]
    places = [(m.topic, m.queue_id, m.queue_offset) for m in messages]
    random.Random(7).shuffle(places)
    topics, queue_ids, offsets = zip(*places, strict=True)
    by_offset = pa.table({"topic": topics, "queue_id": pa.array(queue_ids, pa.int32()), "queue_offset": offsets})
    keys = sorted({(m.topic, key) for m in messages for key in m.keys})
    by_key = pa.table({"topic": [topic for topic, _ in keys], "key": [key for _, key in keys]})
    positions = pa.table(store.resolve_offsets(by_offset))
    segments = sorted((path / "commitlog").iterdir())
    bodies = [message.body for message in messages]
    return {
        "limit: read the segments": (len(messages), lambda: [segment.read_bytes() for segment in segments]),
        "limit: copy the bodies": (len(messages), lambda: b"".join(bodies)),
        "open": (1, lambda: mqstore.open(path).close()),
        "for message in queue": (len(messages), lambda: [m.body for queue in queues for m in queue]),
        "queue[n], random": (len(places), lambda: [store.topics[t].queues[q][n].body for t, q, n in places]),
        "query": (len(keys), lambda: [len(store.query(topic, key)) for topic, key in keys]),
        "resolve_offsets": (len(places), lambda: store.resolve_offsets(by_offset)),
        "resolve_keys": (len(keys), lambda: store.resolve_keys(by_key)),
        "fetch, all columns": (len(places), lambda: store.fetch(positions).to_arrow()),
        "fetch, bodies": (len(places), lambda: store.fetch(positions, columns=["body"]).to_arrow()),
    }


def main() -> None:
    """Unpacks the store, measures, prints."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, UNPACK, EVENTS, directory], check=True)
        path = Path(directory) / "533_events"
        with mqstore.open(path) as store:
            calls = measures(store, path)
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(ROUNDS + 1):
                for name, (_, call) in calls.items():
                    begun = time.perf_counter()
                    call()
                    seconds[name].append(time.perf_counter() - begun)
    print(f"{'call':28}{'rows':>8}{'us a row':>12}{'rows/s':>14}")
    for name, (rows, _) in calls.items():
        median = statistics.median(seconds[name][1:])
        print(f"{name:28}{rows:>8,}{median / rows * 1e6:>12,.2f}{rows / median:>14,.0f}")


if __name__ == "__main__":
    main()
