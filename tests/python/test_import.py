"""The cost of `import mqstore`, and the files that are installed with it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mqstore

ROOT = Path(__file__).resolve().parents[2]

IMPORT = """
import sys, time
before = set(sys.modules)
begin = time.process_time()
import mqstore
print(time.process_time() - begin)
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def fresh_import() -> tuple[float, set[str]]:
    """Seconds of the processor that the import takes in a new interpreter, and the top-level modules that it brings."""
    printed = subprocess.run([sys.executable, "-I", "-c", IMPORT], check=True, capture_output=True, text=True).stdout
    seconds, modules = printed.splitlines()
    return float(seconds), set(modules.split())


def test_import_needs_no_third_party_package() -> None:
    _, modules = fresh_import()
    assert modules - sys.stdlib_module_names == {"mqstore"}


def test_import_brings_nothing_of_futures_and_of_asyncio() -> None:
    _, modules = fresh_import()
    assert modules.isdisjoint({"asyncio", "concurrent", "dataclasses", "logging"})


def test_import_takes_less_than_50_ms() -> None:
    fresh_import()  # reads the files from disk and compiles what is not compiled yet
    assert min(fresh_import()[0] for _ in range(5)) < 0.050


def test_it_requires_no_other_distribution() -> None:
    required = importlib.metadata.requires("mqstore") or []
    assert [requirement for requirement in required if "extra ==" not in requirement] == []


def test_version_is_the_crates() -> None:
    with (ROOT / "Cargo.toml").open("rb") as manifest:
        version = tomllib.load(manifest)["package"]["version"]
    assert importlib.metadata.version("mqstore") == mqstore.__version__ == version


@pytest.mark.parametrize("package", ["mqstore", "pyspark_mqstore"])
def test_both_packages_are_installed_and_typed(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    assert (Path(spec.origin).parent / "py.typed").exists()
