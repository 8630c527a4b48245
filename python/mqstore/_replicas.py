"""Results about the slaves of a store, and about a slave, which `mqstore._reports` has, too."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, final

from mqstore._shown import Shown


@final
@dataclass(frozen=True, kw_only=True)
class Slave(Shown):
    """A slave that is connected.

    Attributes
    ----------
    address : str
        Its "ip:port".
    connected_at : datetime
        When it connected, in UTC.
    from_offset : int
        The physical offset from which on it gets the log.
    acknowledged_offset : int
        The physical offset up to which it holds what it was sent; `from_offset` before its first
        acknowledgement.
    """

    address: str
    connected_at: datetime
    from_offset: int
    acknowledged_offset: int

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)


@final
@dataclass(frozen=True, kw_only=True)
class RefusedSlave(Shown):
    """A slave that got nothing, or nothing more.

    Attributes
    ----------
    address : str
        Its "ip:port".
    refused_at : datetime
        When it was refused, in UTC.
    reason : str
        The reason: it is ahead of this log, asks for what was removed, or sent what no slave sends.
    """

    address: str
    refused_at: datetime
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)


@final
@dataclass(frozen=True, kw_only=True)
class Replicas(Shown):
    """The slaves of a store: what `Writer.replicas` returns.

    Attributes
    ----------
    address : str or None
        Where the store listens for slaves, "ip:port"; None without `ha_listen_port`.
    broker_address : str or None
        Where slaves ask for topics, groups and progress, "ip:port"; None without `listen_port`.
    replicated_offset : int
        The physical offset up to which as many slaves hold the log as `in_sync_replicas` says, of
        what was appended since the open.
    slaves : tuple of Slave
        The connected ones, in the order in which they connected.
    refused : tuple of RefusedSlave
        The last 16 that were refused, the latest at the end.
    """

    address: str | None
    broker_address: str | None
    replicated_offset: int
    slaves: tuple[Slave, ...]
    refused: tuple[RefusedSlave, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)


@final
@dataclass(frozen=True, kw_only=True)
class ReplicaCut(Shown):
    """The removal of the end of a slave's log, where its master has other bytes.

    Attributes
    ----------
    offset : int
        The physical offset of the first byte that was removed.
    bytes : int
        The number of bytes that were removed.
    time : datetime
        When they were removed, in UTC.
    """

    offset: int
    bytes: int
    time: datetime

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)
