"""Appending to RocketMQ's own store, one message after another from one thread: the figures beside those of `benches/append.rs`.

    python tests/interop/bench.py [VERSION...]

Prints; asserts nothing. Each figure is the median of five rounds after one to warm up.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rocketmq import RocketMQ

#: As in `benches/append.rs`.
BODIES = [100, 1024, 16 * 1024]
ROUNDS, ROUND_BYTES, MOST_MESSAGES = 5, 96 << 20, 200_000
VERSION = "5.5.1"


def main(versions: list[str]) -> None:
    """A line for each version and size of body."""
    print(f"{'RocketMQ':>8} {'body':>8} {'messages':>10} {'append ns':>12} {'messages/s':>14} {'durable ns':>14}")
    for version in versions:
        rocketmq = RocketMQ(version, compiled_in_full=True)
        for body in BODIES:
            messages = min(ROUND_BYTES // body, MOST_MESSAGES)
            with tempfile.TemporaryDirectory() as folder:
                command = f"bench={body},{messages},{ROUNDS}"
                [found] = rocketmq.run(Path(folder) / "store", None, command)["bench"]
            append, durable = found["append_ns"], found["durable_ns"]
            print(f"{version:>8} {body:>8} {messages:>10} {append:>12.0f} {1e9 / append:>14.0f} {durable:>14.0f}")


if __name__ == "__main__":
    main(sys.argv[1:] or [VERSION])
