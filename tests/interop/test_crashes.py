"""Stores that RocketMQ did not close, recovered by RocketMQ and by mqstore. See README.md."""

from __future__ import annotations

import base64
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import compare
from crash import AFTERWARDS, Examiner, Image, crash, images_of, wanted
from generator import Generator, Geometry
from proof import RECOVERED, Proof
from rocketmq import RocketMQ

#: The number of kills of a writer, and of messages that it writes; each makes one image of every kind.
CRASHES, MESSAGES = 3, 2_000
#: Examined beside each other: much of it is waiting.
WORKERS = 3


def examine(rocketmq: RocketMQ, geometry: Geometry, proof: Proof, images: list[Image], drawn: random.Random) -> None:
    """Has both sides recover every image, and fails on any difference."""
    examiners = [Examiner(rocketmq, geometry, image, drawn) for image in images]
    with ThreadPoolExecutor(WORKERS) as workers:
        list(workers.map(Examiner.examine, examiners))
    for examiner in examiners:
        proof.compared["images"] += 1
        proof.messages["RocketMQ"] += len(examiner.image.kept)
        proof.differences += examiner.differences
        RECOVERED.extend(examiner.rows)
    assert not proof.differences, "\n".join([f"{len(proof.differences)} differences, the first are", *proof.differences[:10]])


def kill(rocketmq: RocketMQ, geometry: Geometry, folder: Path) -> list[Image]:
    """Every image of one killed writer; the folder's name is the seed."""
    seed = f"{rocketmq.version} crash {folder.name}"
    generator = Generator(
        seed,
        geometry,
        longest_topic=rocketmq.longest_topic,
        separator_at_end=rocketmq.separator_at_end,
        now_ms=time.time_ns() // 1_000_000,
    )
    folder.mkdir()
    return crash(rocketmq, geometry, generator.plan(MESSAGES), folder, random.Random(seed))


def test_we_bring_back_at_least_what_rocketmq_does_after_it_was_killed(
    rocketmq: RocketMQ, geometry: Geometry, proof: Proof, tmp_path: Path
) -> None:
    proof.way = "RocketMQ was killed, both recover"
    with ThreadPoolExecutor(WORKERS) as workers:
        folders = [tmp_path / str(number) for number in range(CRASHES)]
        crashed = list(workers.map(lambda folder: kill(rocketmq, geometry, folder), folders))
    images = [image for images in crashed for image in images]
    examine(rocketmq, geometry, proof, images, random.Random(rocketmq.version))


def test_a_store_of_25_segments_without_derived_files_comes_back_whole(rocketmq: RocketMQ, proof: Proof, tmp_path: Path) -> None:
    """RocketMQ looks at its ten newest segments since 5.4: 5.5.1 brings back 160 of these messages."""
    proof.way = "derived files deleted from 25 segments, both recover"
    geometry = Geometry(segment=16 << 10, queue=1_000, slots=100, items=400)
    put = AFTERWARDS | {"body": base64.b64encode(bytes(900)).decode()}
    plan = [put | {"properties": {"KEYS": f"k{number}"}} for number in range(400)]
    left = tmp_path / "left"
    stored, _ = compare.places(rocketmq.write(left, geometry, plan))
    (left / "abort").touch()
    losses = {"queues, index and checkpoint lost from 25 segments": ["consumequeue", "index", "checkpoint"]}
    images = images_of(left, wanted(plan, rocketmq), stored, losses)
    examine(rocketmq, geometry, proof, images, random.Random(0))
    [messages] = [row for row in RECOVERED if row.version == rocketmq.version and row.image.endswith("25 segments: messages")]
    assert messages.mqstore == 400
    assert messages.rocketmq == (160 if rocketmq.number >= (5, 4) else 400)
