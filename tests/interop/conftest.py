"""Says what was proved, at the end of the run."""

from __future__ import annotations

import pytest
from proof import PROOFS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Messages of each kind, then what was compared, for each version and way."""
    if not PROOFS:
        return
    proofs = [proof for proof in PROOFS if proof.kinds]
    write = terminalreporter.write_line
    terminalreporter.section("interoperation with RocketMQ's own store")
    write("messages written, of each kind (most are of several)")
    write(f"  {'':<28}" + "".join(f"{proof.version + ' ' + proof.way[:1]:>8}" for proof in proofs))
    for kind in max((proof.kinds for proof in proofs), key=len, default={}):
        write(f"  {kind:<28}" + "".join(f"{proof.kinds.get(kind, '-'):>8}" for proof in proofs))
    write("")
    for proof in PROOFS:
        written = " and ".join(f"{count:,} of {writer}" for writer, count in proof.messages.items())
        compared = ", ".join(f"{count:,} {what}" for what, count in proof.compared.items())
        write(f"{proof.version}  {proof.way}: {written}; {compared}; {len(proof.differences)} differences")
    messages = sum(proof.messages.total() for proof in PROOFS)
    write(f"in all {messages:,} messages, {sum(len(proof.differences) for proof in PROOFS)} differences")
