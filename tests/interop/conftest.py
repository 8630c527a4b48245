"""What was proved, at the end of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest


@dataclass
class Proof:
    """One way of one version."""

    version: str
    way: str
    #: What was compared, by name.
    compared: Counter[str] = field(default_factory=Counter)
    #: Messages of each kind.
    kinds: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


PROOFS: list[Proof] = []


@pytest.fixture
def proof(request: pytest.FixtureRequest) -> Proof:
    """Where a test writes down what it compared."""
    made = Proof(request.getfixturevalue("rocketmq").version, "")
    PROOFS.append(made)
    return made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Messages of each kind, then what was compared, for each version and way."""
    proofs = [proof for proof in PROOFS if proof.compared]
    if not proofs:
        return
    write = terminalreporter.write_line
    terminalreporter.section("interoperation with RocketMQ's own store")
    write("messages written, of each kind (a message is of several)")
    heads = [f"{proof.version} {proof.way[0]}" for proof in proofs]
    write(f"  {'':<28}" + "".join(f"{head:>8}" for head in heads))
    for kind in max((proof.kinds for proof in proofs), key=len):
        write(f"  {kind:<28}" + "".join(f"{proof.kinds.get(kind, '-'):>8}" for proof in proofs))
    write("")
    for proof in proofs:
        compared = ", ".join(f"{count:,} {what}" for what, count in proof.compared.items())
        write(f"{proof.version}  {proof.way}: {compared}: {len(proof.differences)} differences")
    total = sum(proof.compared["messages"] for proof in proofs)
    write(f"in all {total:,} messages compared, {sum(len(proof.differences) for proof in proofs)} differences")
