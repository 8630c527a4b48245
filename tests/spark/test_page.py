"""The programs of docs/SPARK.md run, one after the other, and so does that of the README."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import mqstore
import mqstore.spark as mq

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "SPARK.md"
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
MESSAGES = 10


def fill(path: Path) -> None:
    with mqstore.open(path, mode="x") as store:
        for number in range(MESSAGES):
            store.append("orders", b"%d" % number, tags="paid" if number % 2 else "open", keys=[f"order-{number}"])
        store.append("refunds", b"refund")


def count(path: Path) -> int:
    with mqstore.open(path) as store:
        return len(store.topics["orders"].queues[0])


def test_the_program_of_the_readme_copies_paid_orders(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "store")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [program] = [found for found in PROGRAM.findall(readme) if "mqstore.spark" in found]
    program = re.sub(r'"(store|paid)"\)(?!\.save)', rf'"{tmp_path}/\1")', program)
    exec(program, {"spark": spark})
    assert count(tmp_path / "paid") == MESSAGES / 2


@pytest.mark.slow
def test_every_program_of_the_page_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("data/store", "mnt/a", "mnt/b"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        fill(tmp_path / path)
    refs = spark.range(MESSAGES).selectExpr("'orders' topic", "0 queue_id", "id queue_offset", "concat('order-', id) key")
    refs.createOrReplaceTempView("refs")
    references = spark.range(MESSAGES + 5).selectExpr("'orders' topic", "0 queue_id", "id queue_offset", "id order_id")
    stores = mq.Stores({"broker-a": tmp_path / "mnt/a", "broker-b": tmp_path / "mnt/b"})
    names: dict[str, Any] = {
        "__name__": "page",
        "spark": spark,
        "mq": mq,
        "mqstore": mqstore,
        "json": json,
        "timedelta": timedelta,
    }
    names |= {
        "timedelta": timedelta,
        "df": refs,
        "references": references,
        "updates": spark.readStream.format("mqstore").options(startingOffsets="earliest").load(f"{tmp_path}/mnt/a"),
        "rdd": refs.rdd,
        "frame": mq.scan(spark, stores),
        "yesterday": datetime.now(UTC) - timedelta(days=1),
    }
    for program in PROGRAM.findall(PAGE.read_text(encoding="utf-8")):
        exec(re.sub(r'"(/data|/mnt)/', rf'"{tmp_path}\1/', program), names)
        if "query" in names:
            query = names.pop("query")
            query.processAllAvailable()
            query.stop()
    assert spark.read.parquet(str(tmp_path / "data/orders")).count() == MESSAGES + 1
    assert count(tmp_path / "data/copy") == 2 * MESSAGES, "rows of the job, and of the streaming query"
    assert names["part"].count() == 5
    assert names["late"].count() == MESSAGES / 2
    assert names["bodies"].count() == MESSAGES
    assert [count(tmp_path / "data/brokers" / broker) for broker in ("broker-a", "broker-b")] == [MESSAGES, MESSAGES]
