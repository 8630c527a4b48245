"""Stores for tests: small, with a clock of their own, and as a broker writes them.

>>> import mqstore, tempfile
>>> from mqstore.testing import Broker
>>> with Broker(tempfile.mkdtemp() + "/store") as broker:
...     sent = broker.send("orders", b"two shirts", tags="paid", keys=["o-1"])
...     late = broker.send("orders", b"a reminder", delay_level=3)      # waits in SCHEDULE_TOPIC_XXXX
...     broker.clock.advance(10)                                        # 10 s, the delay of level 3
...     [delivered] = broker.deliver()
...     half = broker.send_half("payments", b"10 EUR", group="tellers")
...     paid = broker.end_transaction(half, "commit")
...     again = broker.send_back(sent, "billing")                       # failed: waits for %RETRY%billing
...     broker.commit_offset("billing", "orders", 0, 1)
>>> with mqstore.open(broker.path) as store:
...     print(*store.topics, sep="\\n")
RMQ_SYS_TRANS_HALF_TOPIC
RMQ_SYS_TRANS_OP_HALF_TOPIC
SCHEDULE_TOPIC_XXXX
orders
payments

pytest finds the fixtures of `mqstore.testing.plugin` by itself; `pytest --fixtures` lists them. This module needs no pytest.
"""

from __future__ import annotations

from mqstore.testing._broker import SMALL, Broker
from mqstore.testing._clock import Clock

__all__ = ["SMALL", "Broker", "Clock"]
