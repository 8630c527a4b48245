"""Writes small stores as RocketMQ lays them out (docs/FORMAT.md), from scratch, so that a test says what is in them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

MAGIC_V1 = 0xDAA320A7
MAGIC_BLANK = 0xCBD43194
BLANK_SIZE = 8
#: Half past midnight on 1 January 2026, in UTC.
EPOCH_MS = 1_767_227_400_000


def java_hash(text: str) -> int:
    """String.hashCode()."""
    units = struct.iter_unpack(">H", text.encode("utf-16-be"))
    value = 0
    for (unit,) in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def host(text: str) -> bytes:
    """An address as 4 or 16 bytes and a port of 4."""
    address, _, port = text.rpartition(":")
    return ip_address(address.strip("[]")).packed + struct.pack(">i", int(port))


def queue_entry(physical_offset: int, size: int, tags_code: int) -> bytes:
    return struct.pack(">qiq", physical_offset, size, tags_code)


PRE_BLANK = queue_entry(0, 0x7FFFFFFF, 0)


@dataclass
class Encoder:
    """A store in the making: append to it, change what a broker would not write, then write it."""

    path: Path
    segment_size: int = 16_384
    queue_file_entries: int = 50
    #: Slots and items of the index file; None for a store without an index.
    index_geometry: tuple[int, int] | None = (200, 2000)
    log: bytearray = field(default_factory=bytearray)
    queues: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    #: (key with its topic, physical offset, store time) in the order in which they are put.
    indexed: list[tuple[str, int, int]] = field(default_factory=list)

    def append(
        self,
        topic: str,
        body: bytes = b"",
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: Sequence[str] = (),
        unique_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        store_time: int = EPOCH_MS,
        born_time: int = EPOCH_MS,
        born_host: str = "10.0.0.7:40000",
        store_host: str = "10.0.0.1:10911",
        sys_flag: int = 0,
        flag: int = 0,
    ) -> int:
        """Appends a message to the log, its queue and the index; its physical offset."""
        named = dict(properties or {})
        named |= {"KEYS": " ".join(keys)} if keys else {}
        named |= {"UNIQ_KEY": unique_key} if unique_key else {}
        named |= {"TAGS": tags} if tags else {}
        text = "".join(f"{name}\x01{value}\x02" for name, value in named.items()).encode()
        entries = self.queues.setdefault((topic, queue_id), [])
        born, store, name = host(born_host), host(store_host), topic.encode()
        sys_flag |= (0x10 if len(born) == 20 else 0) | (0x20 if len(store) == 20 else 0)
        rest = struct.pack(">q", born_time) + born + struct.pack(">q", store_time) + store
        rest += struct.pack(">iqi", 0, 0, len(body)) + body
        rest += struct.pack(">B", len(name)) + name + struct.pack(">h", len(text)) + text
        size, crc = 40 + len(rest), zlib.crc32(body) & 0x7FFFFFFF
        start = self._room_for(size)
        head = struct.pack(">IIiiiqqi", size, MAGIC_V1, crc, queue_id, flag, len(entries), start, sys_flag)
        physical_offset = self.append_record(head + rest)
        entries.append(queue_entry(physical_offset, size, java_hash(tags) if tags else 0))
        for key in [*([unique_key] if unique_key else []), *keys]:
            self.indexed.append((f"{topic}#{key}", physical_offset, store_time))
        return physical_offset

    def append_record(self, record: bytes) -> int:
        """Appends the bytes of a record, after a BLANK if the segment is too short. Returns where they start."""
        physical_offset = self._room_for(len(record))
        remaining = physical_offset - len(self.log)
        if remaining:
            self.log += struct.pack(">II", remaining, MAGIC_BLANK).ljust(remaining, b"\0")
        self.log += record
        return physical_offset

    def _room_for(self, size: int) -> int:
        remaining = self.segment_size - len(self.log) % self.segment_size
        assert size + BLANK_SIZE <= self.segment_size, "a record must fit into a segment"
        return len(self.log) + (0 if size + BLANK_SIZE <= remaining else remaining)

    def write(self, *, clean: bool = True) -> Path:
        """Writes all files; returns the store's folder."""
        self._write_files(self.path / "commitlog", bytes(self.log), self.segment_size)
        for (topic, queue), entries in self.queues.items():
            folder = self.path / "consumequeue" / topic / str(queue)
            self._write_files(folder, b"".join(entries), 20 * self.queue_file_entries)
        if self.index_geometry and self.indexed:
            (self.path / "index").mkdir()
            (self.path / "index" / "20260101003000000").write_bytes(self._index(*self.index_geometry))
        last = self.indexed[-1][2] if self.indexed else EPOCH_MS
        (self.path / "checkpoint").write_bytes(struct.pack(">qqq", last, last, 0).ljust(4096, b"\0"))
        if not clean:
            (self.path / "abort").touch()
        return self.path

    @staticmethod
    def _write_files(folder: Path, content: bytes, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for start in range(0, max(len(content), 1), size):
            piece = content[start : start + size]
            (folder / f"{start:020}").write_bytes(piece.ljust(size, b"\0"))

    def _index(self, slots: int, items: int) -> bytes:
        """One index file with every key put."""
        assert len(self.indexed) < items, "the test needs a larger index"
        image = bytearray(40 + 4 * slots + 20 * items)
        newest = [0] * slots
        begin_time = self.indexed[0][2]
        for number, (key, physical_offset, store_time) in enumerate(self.indexed, start=1):
            key_hash = abs(java_hash(key)) & 0x7FFFFFFF
            slot = key_hash % slots
            # The first key is put while the header's begin time is still 0.
            seconds = max(0, (store_time - begin_time) // 1000) if number > 1 else 0
            item = struct.pack(">iqii", key_hash, physical_offset, seconds, newest[slot])
            struct.pack_into(">20s", image, 40 + 4 * slots + 20 * number, item)
            struct.pack_into(">i", image, 40 + 4 * slot, number)
            newest[slot] = number
        _, begin_offset, _ = self.indexed[0]
        _, end_offset, end_time = self.indexed[-1]
        used = sum(1 for number in newest if number)
        header = struct.pack(">qqqqii", begin_time, end_time, begin_offset, end_offset, used, len(self.indexed) + 1)
        image[:40] = header
        return bytes(image)
