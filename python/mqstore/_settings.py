"""Missing files of `config` that a broker writes."""

from __future__ import annotations

import glob
import os

import mqstore

#: Files of a broker, each with others that it writes at the same time: if these exist, the file has existed, too. A store that no
#: broker has written has the topics, and the offsets of groups only once it has groups.
_WRITTEN_WITH = {
    "topics.json": ("consumerOffset.json", "delayOffset.json"),
    "consumerOffset.json": ("topics.json", "subscriptionGroup.json"),
    "delayOffset.json": ("topics.json",),
}


def why_missing(store: mqstore.Store, name: str) -> str | None:
    """Returns the reason for a missing file of `config`; None if it is there, or if no broker has written the store."""
    config = os.path.join(store.path, "config")

    def is_there(file: str) -> bool:
        return os.path.exists(os.path.join(config, file))

    if is_there(name) or is_there(f"{name}.bak"):
        return None
    if aside := max((backup for backup in _backups(store) if os.path.basename(backup) == name), default=None):
        return f"a repair has set the damaged {name} aside: {aside}"
    others = _WRITTEN_WITH.get(name, ())
    return f"{name} is missing" if others and all(map(is_there, others)) else None


def missing_settings(store: mqstore.Store) -> dict[str, str]:
    """Returns the names of all missing files, each with the reason."""
    names = {*_WRITTEN_WITH, *map(os.path.basename, _backups(store))}
    return {name: why for name in sorted(names) if (why := why_missing(store, name)) is not None}


def _backups(store: mqstore.Store) -> list[str]:
    """Returns the paths of the settings that repairs have set aside."""
    found = glob.glob("mqstore-backup-*/config/*.json", root_dir=store.path)
    return [os.path.join(store.path, name) for name in found]
