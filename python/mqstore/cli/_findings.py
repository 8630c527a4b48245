"""The output of findings for people."""

from __future__ import annotations

from collections.abc import Iterable

from mqstore._rows import visible
from mqstore.cli._output import Output, Row

#: The fields that all findings of one kind share.
SHARED = ("severity", "id", "meaning", "known_as", "fix")
#: The number of findings of one kind that are printed.
SHOWN = 3


def print_findings(out: Output, findings: Iterable[Row]) -> None:
    """Prints findings by kind: severity, position and text of each, then the meaning and the fix of the kind."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for finding in findings:
        kinds.setdefault(tuple(finding[name] for name in SHARED), []).append(finding)
    for kind in kinds.values():
        for finding in kind[:SHOWN]:
            out.line(f"{finding['severity']}:{_position(finding)} [{finding['id']}]")
            out.line(f"  {visible(finding['message'])}")
        if len(kind) > SHOWN:
            out.line(f"  and {len(kind) - SHOWN} more of this kind (--json lists all)")
        first = kind[0]
        known = f" (RocketMQ {first['known_as']})" if first["known_as"] else ""
        out.line(f"  {visible(first['meaning'])}{known}")
        if first["fix"]:
            out.line(f"  {visible(first['fix'])}")


def _position(finding: Row) -> str:
    if finding["file"] is None:
        return ""
    position = f" {visible(finding['file'])}"
    if finding["offset"] is not None:
        position += f" at byte {finding['offset']}"
    if finding["count"] == 1 and finding["queue_offset"] is not None:
        position += f", {visible(finding['topic'])}/{finding['queue_id']}@{finding['queue_offset']}"
    if finding["count"] > 1:
        position += f", {finding['count']} times up to byte {finding['last_offset']}"
    return position
