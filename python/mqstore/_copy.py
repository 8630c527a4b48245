"""`Store.copy_to`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mqstore._files import absolute, whole
from mqstore._lost_queues import warn_of_lost
from mqstore._native import Store, open
from mqstore.files import Copied

SIZES = {"mapped_file_size_commit_log", "mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num"}
#: Arguments of `scan` that would change messages or their order.
NOT_FOR_COPIES = {"columns", "batch_bytes", "decode_body", "order", "reverse", "transactions"}


def copy_to(
    store: Store,
    path: str | os.PathLike[str],
    *,
    rename: Mapping[str, str] | None = None,
    keep_store_time: bool = True,
    geometry: str | Mapping[str, int] | None = None,
    **conditions: Any,
) -> Copied:
    """See `Store.copy_to`."""
    if refused := sorted(NOT_FOR_COPIES & conditions.keys()):
        raise TypeError(f"copy_to() takes no argument {refused[0]!r}: help(mqstore.Store.copy_to) says what is copied")
    target, options = absolute(path), store._options_of_copy() | _sizes(geometry)
    # A stored message may be larger than the default limit. The copy refuses only a message larger than a segment.
    options |= {"max_message_size": 2**31 - 1, "wait_time_out": 600_000}
    if keep_store_time:
        # A message after a checkpoint gets a later store time than the checkpoint, so the copy writes none before its close.
        options["checkpoint_interval"] = 2**63 - 1
    batches = store.scan(**conditions)
    with (
        whole(target) as part,
        open(part, "x", services=False, **{name: value for name, value in options.items() if value is not None}) as new,
    ):
        topics, size, left_out, raised = new._copy_from(batches, dict(rename or {}), keep_store_time)
    named, left = MappingProxyType(topics), MappingProxyType(left_out)
    rows = sum(topics.values())
    lost = warn_of_lost(store, target, batches, conditions)
    told = (batches.skipped, batches.complete and not lost, batches.covers, tuple(batches.absent_topics), lost)
    return Copied(target, rows, size, named, left, raised, *told)


def _sizes(geometry: str | Mapping[str, int] | None) -> dict[str, Any]:
    """Returns the sizes that `geometry` states, as options of `open`."""
    if geometry is None:
        return {}
    own: dict[str, Any] = dict.fromkeys(SIZES)
    if geometry == "broker":
        return own | {"geometry": "broker"}
    if not isinstance(geometry, Mapping):
        raise ValueError(f'geometry is {geometry!r}: expected "broker" or a mapping of sizes')
    if unknown := sorted(geometry.keys() - SIZES):
        raise ValueError(f"geometry has {unknown[0]!r}: its sizes are {', '.join(sorted(SIZES))}")
    return own | dict(geometry)
