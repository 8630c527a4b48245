"""A store to try the commands on."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path

import click

from mqstore.cli._main import Failure, command, commands, from_the_command_line

#: What the walk shows, and the command for it.
WALK = (
    ("What is in the store?", "info {store}"),
    ("Which topics does it have?", "topics {store}"),
    ("Which topic takes the room?", "du {store}"),
    ("What was sent last?", "tail {store} -n 3"),
    ("Where is the order o-7?", "find {store} --topic orders --key o-7"),
    ("The same for a program.", "find {store} --topic orders --key o-7 --json --body-as json"),
    ("Who lags?", "lag {store} billing"),
    ("What waits, and until when?", "delayed {store}"),
    ("Which transactions are open?", "transactions {store}"),
    ("What did consumers fail on?", "dead {store}"),
    ("What is wrong?", "doctor {store}"),
)


@command(examples=("demo", "demo /tmp/demo"))
@click.argument("directory", required=False, type=click.Path())
def demo(directory: str | None) -> None:
    """Makes a small store, and walks through the commands.

    The store is as a broker writes it. It is made in DIRECTORY, which must be missing or empty, and stays there. Without
    DIRECTORY it is removed at the end.
    """
    with ExitStack() as kept:
        if directory is None:
            from tempfile import TemporaryDirectory

            directory = str(Path(kept.enter_context(TemporaryDirectory(prefix="mqstore-")), "store"))
        with from_the_command_line():
            _make(directory)
        for title, line in WALK:
            print(f"\n# {title}\n$ mqstore {line.format(store=shlex.quote(directory))}", flush=True)
            arguments = [word.format(store=directory) for word in line.split()]
            try:
                commands.main(arguments, "mqstore", standalone_mode=False)
            except Failure as failure:
                failure.show()
    print("\nmqstore --help lists all commands.")


def _make(directory: str) -> None:
    from mqstore.testing import Broker

    with Broker(directory) as broker:
        orders = []
        for number in range(1, 21):
            body = b'{"order": %d, "city": "%s"}' % (number, (b"Oslo", b"Lima", b"Pune")[number % 3])
            orders.append(broker.send("orders", body, tags="paid" if number % 2 else "open", keys=[f"o-{number}"]))
            broker.clock.advance(1)
        for queue, offset in enumerate((5, 5, 3, 0)):
            broker.commit_offset("billing", "orders", queue, offset)
        broker.send("reminders", b"o-19 is not paid", keys=["o-19"], delay_level=18)
        committed = broker.send_half("payments", b"10 EUR", group="tellers", keys=["o-1"])
        broker.end_transaction(committed, "commit")
        broker.send_half("payments", b"20 EUR", group="tellers", keys=["o-2"])
        broker.send_back(orders[-1], "billing", delay_level=-1)
