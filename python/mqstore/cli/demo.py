"""The command `demo`: a store to try the commands on."""

from __future__ import annotations

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from mqstore.cli._main import Failure, command, commands, from_the_command_line

#: The questions of the walk, each with the command that answers it.
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
#: The commands to try next on a store that stays.
NEXT = ("info {store}", "find {store} --topic orders --key o-7", "doctor {store}")


@command(examples=("demo", "demo store"))
@click.argument("directory", required=False, type=click.Path())
def demo(directory: str | None) -> None:
    """Makes a small store, and names the commands to try on it.

    The store is as a broker writes it. DIRECTORY must be absent or empty. Without DIRECTORY, demo shows what eleven
    commands print, on a store that it removes at the end.
    """
    if directory is None:
        with TemporaryDirectory(prefix="mqstore-") as folder:
            _walk(str(Path(folder, "store")))
        print("\nmqstore --help lists all commands.")
        return
    with from_the_command_line():
        _make(directory)
    store = shlex.quote(directory)
    print(f"{store} is a small store, as a broker writes it. Try next:\n")
    for line in NEXT:
        print(f"mqstore {line.format(store=store)}")


def _walk(directory: str) -> None:
    _make(directory)
    for title, line in WALK:
        print(f"\n# {title}\n$ mqstore {line.format(store=shlex.quote(directory))}", flush=True)
        arguments = [word.format(store=directory) for word in line.split()]
        try:
            commands.main(arguments, "mqstore", standalone_mode=False)
        except Failure as failure:
            failure.show()


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
