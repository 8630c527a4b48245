"""Findings, and how they are printed for people."""

from __future__ import annotations

from collections.abc import Iterable

import mqstore
from mqstore._rows import visible
from mqstore.cli._output import Output, Row
from mqstore.cli._words import without_advice


def rows_of_findings(report: mqstore.VerifyReport) -> list[Row]:
    """What `verify` found, as JSON has it."""
    return [finding.to_dict() | {"message": without_advice(finding.message)} for finding in report.findings]


def print_findings(out: Output, findings: Iterable[Row]) -> None:
    """Prints each: how bad it is and where, what was found, what it means, what sets it right."""
    for finding in findings:
        place = ""
        if finding["file"] is not None:
            place = f" {visible(finding['file'])} at byte {finding['offset']}"
            if finding["count"] > 1:
                place += f", {finding['count']} times up to byte {finding['last_offset']}"
        out.line(f"{finding['severity']}:{place} [{finding['id']}]")
        out.line(f"  {visible(finding['message'])}")
        known = f" (RocketMQ {finding['known_as']})" if finding["known_as"] else ""
        out.line(f"  {visible(finding['meaning'])}{known}")
        if finding["fix"]:
            out.line(f"  {visible(finding['fix'])}")
