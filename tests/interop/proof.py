"""A record of what the tests compared, for the summary at the end of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Proof:
    """One way of one version."""

    version: str
    #: "a", "b" or "c", and what that is.
    way: str = ""
    #: Messages written and found again with every field, by who wrote them.
    messages: Counter[str] = field(default_factory=Counter)
    #: How much was compared, by name: in the third way a store is compared after every turn.
    compared: Counter[str] = field(default_factory=Counter)
    #: How many messages are of each kind.
    kinds: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Recovered:
    """Counts an image's messages, or keys of messages, that each side finds again after recovery."""

    version: str
    image: str
    rocketmq: int
    mqstore: int
    of: int


PROOFS: list[Proof] = []
RECOVERED: list[Recovered] = []
