"""The messages that RocketMQ reads from the golden stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "expected"


class Expected:
    """The messages that RocketMQ reads from a store."""

    def __init__(self, name: str) -> None:
        lines = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]
        self.messages = [line for line in lines if "msg_id" in line]
        self.queues = {line["queue"]: (line["min"], line["max"]) for line in lines if "queue" in line}
        [self.bounds] = [line for line in lines if "max_physical_offset" in line]

    def of(self, topic: str) -> list[dict[str, Any]]:
        """The messages of a topic in the order of the log."""
        return sorted((m for m in self.messages if m["topic"] == topic), key=lambda m: m["physical_offset"])

    @property
    def topics(self) -> list[str]:
        return sorted({queue.rpartition("/")[0] for queue in self.queues})
