"""A process that uses every service of a store until it is killed: `python services.py STORE JOURNAL SEED OPTIONS`.

It appends messages that are plain, delayed, timed or of transactions, recalls timers, ends transactions, consumes, acknowledges
and sends back. Its journal has a line of JSON before and after each call, which survives a kill. A message has its number as
body.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal, NoReturn

import mqstore

TOPIC, GROUP = "orders", "billing"
QUEUES = 2
#: Longer than a process lives from an append to the recall of it.
RECALLED_S = 5
ENDS: tuple[Literal["commit"], Literal["rollback"]] = ("commit", "rollback")


class Program:
    """A store, and the journal of what is done to it."""

    def __init__(self, path: str, journal: str, seed: int, options: dict[str, Any]) -> None:
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.note("begun")
        self._chance = random.Random(seed)
        # The numbers of another process are of another million.
        self._numbers = itertools.count(1_000_000 * (seed + 1))
        self._store = mqstore.open(path, "a", **options)
        self._consumer = self._store.consumer(GROUP, TOPIC)
        self._open = {int(half.message.body): half.id for half in self._store.transactions.open()}
        self._ended: list[tuple[int, str]] = []

    def note(self, what: str, *more: object) -> None:
        os.write(self._journal, json.dumps([what, *more]).encode() + b"\n")

    def run(self) -> NoReturn:
        """Makes calls until the process is killed."""
        if self._chance.random() < 0.5:
            self._store.transactions.check(self._answer, timeout=0.1, interval=0.1, max_checks=1_000_000)
        calls: list[Callable[[], object]] = [
            self._append,
            lambda: self._append(delay_level=1),
            lambda: self._append(deliver_at=timedelta(milliseconds=self._chance.randrange(1, 600))),
            self._recall,
            self._send_half,
            self._send_half,
            self._end,
            self._end_again,
            self._consume,
            self._consume,
            self._flush,
            lambda: self._consumer.commit(durable=True),
        ]
        sys.stdout.write("running\n")
        sys.stdout.flush()
        while True:
            self._chance.choice(calls)()

    def _append(self, **when: Any) -> None:
        number = next(self._numbers)
        self.note("append", number)
        self._store.append(TOPIC, b"%d" % number, queue_id=number % QUEUES, **when)
        self.note("appended", number)

    def _recall(self) -> None:
        number = next(self._numbers)
        self.note("append", number)
        timer = self._store.append(
            TOPIC,
            b"%d" % number,
            queue_id=number % QUEUES,
            deliver_at=timedelta(seconds=RECALLED_S),
            unique_key=mqstore.new_unique_key(),
        )
        self.note("appended", number)
        self.note("recall", number)
        # On a busy machine it may come too late.
        with suppress(mqstore.IllegalMessageError):
            self._store.broker.recall(timer)
            self.note("recalled", number)

    def _send_half(self) -> None:
        number = next(self._numbers)
        self.note("send", number)
        half = self._store.transactions.send_half(TOPIC, b"%d" % number, queue_id=number % QUEUES)
        self.note("sent", number)
        # Some stay open, for the next process or a check.
        if self._chance.random() < 0.7:
            self._open[number] = half.id

    def _end(self) -> None:
        if not self._open:
            return
        number = self._chance.choice(list(self._open))
        half, how = self._open.pop(number), self._chance.choice(ENDS)
        self.note("end", number, how)
        try:
            self._store.transactions.end(half, how)
        except mqstore.TransactionEndedError as error:
            # The check was first.
            self.note("refused", number, error.outcome)
        else:
            self.note("ended", number, how)
        self._ended.append((number, half))

    def _end_again(self) -> None:
        if self._ended:
            number, half = self._chance.choice(self._ended)
            try:
                self._store.transactions.end(half, "commit")
            except mqstore.TransactionEndedError as error:
                self.note("refused", number, error.outcome)
            else:
                self.note("twice", number)

    def _answer(self, half: mqstore.Half) -> str | None:
        number = int(half.message.body)
        if number % 3 == 2:
            return None
        self.note("end", number, ENDS[number % 3])
        return ENDS[number % 3]

    def _consume(self) -> None:
        messages = self._consumer.poll(16, timeout=0)
        if not messages:
            return
        self.note("given", [int(message.body) for message in messages])
        if self._chance.random() < 0.2:
            number = int(messages[0].body)
            self._consumer.nack(messages.pop(0), delay_level=1)
            self.note("sent back", number)
        self._consumer.ack(messages)

    def _flush(self) -> None:
        self._store.flush()
        self.note("flushed")


if __name__ == "__main__":
    Program(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])).run()
