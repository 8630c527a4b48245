"""RocketMQ's own store as a process that answers one round a line: `python rocketmq_rounds.py VERSION STORE [OPTION=VALUE...]`.

`benches/harness/rocketmq.rs` asks the questions; `tests/interop/src` answers them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

INTEROP = Path(__file__).resolve().parents[2] / "tests" / "interop"
sys.path.insert(0, str(INTEROP))

from rocketmq import RocketMQ  # noqa: E402


def main() -> None:
    """Replaces this process by that of the store."""
    version, store, *options = sys.argv[1:]
    command = RocketMQ(version, compiled_in_full=True).command
    os.execv(command[0], [*command, store, *options, "rounds"])


if __name__ == "__main__":
    main()
