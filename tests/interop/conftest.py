"""Shared by these tests, and the summary at the end of the run."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from generator import Geometry
from proof import PROOFS, RECOVERED, Proof
from rocketmq import VERSIONS, RocketMQ

#: Small sizes, so that every kind of file rolls; different ones, so that none is special.
GEOMETRIES = {
    "4.9.1": Geometry(segment=128 << 10, queue=1_000, slots=100, items=400),
    "4.9.8": Geometry(segment=256 << 10, queue=20_000, slots=500, items=1_000),
    "5.3.3": Geometry(segment=1 << 20, queue=2_000, slots=1_000, items=4_000),
    "5.5.1": Geometry(segment=64 << 10, queue=1_000, slots=100, items=400),
}


@pytest.fixture(scope="session", autouse=True)
def _far_from_utc() -> Iterator[None]:
    """Names of index files are local times, and order the files: both sides must use the same clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="session", params=VERSIONS)
def rocketmq(request: pytest.FixtureRequest) -> RocketMQ:
    """Each published version."""
    return RocketMQ(request.param)


@pytest.fixture
def proof(rocketmq: RocketMQ) -> Proof:
    """Returns the file to which a test writes what it compared."""
    made = Proof(rocketmq.version)
    PROOFS.append(made)
    return made


@pytest.fixture
def geometry(rocketmq: RocketMQ) -> Geometry:
    """Of the stores that are shared with that version."""
    return GEOMETRIES[rocketmq.version]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Returns the directory for the images that each side recovered."""
    parser.addoption("--record-images", type=Path, help="write who recovered what from RocketMQ's crash images, as JSON Lines")


def recovered() -> list[dict[str, str | int]]:
    """Counts what each side recovered, of all images of a kind."""
    kinds: dict[tuple[str, str], Counter[str]] = {}
    for row in RECOVERED:
        counts = {"rocketmq": row.rocketmq, "mqstore": row.mqstore, "of": row.of}
        kinds.setdefault((row.version, row.image), Counter()).update(counts)
    return [{"version": version, "image": image, **counts} for (version, image), counts in kinds.items()]


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
    if RECOVERED:
        write("")
        write(f"what came back from RocketMQ's crash images: {'RocketMQ':>38} {'mqstore':>8} {'of':>8}")
    for row in recovered():
        write(f"{row['version']}  {row['image']:<75} {row['rocketmq']:>8} {row['mqstore']:>8} {row['of']:>8}")
    path = terminalreporter.config.getoption("record_images")
    if path is not None:
        path.write_text("".join(json.dumps(row) + "\n" for row in recovered()))
    messages = sum(proof.messages.total() for proof in PROOFS)
    write(f"in all {messages:,} messages, {sum(len(proof.differences) for proof in PROOFS)} differences")
