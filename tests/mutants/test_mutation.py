"""A mutant follows its code to another place, and is reported when its code is gone or is in two places. Its fingerprint shows
whether a verdict is outdated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mutation import Edit, Mutant, Sources, fingerprint

LOG = """
impl<T: Fn() -> u8> Seal for Log<T> {
    /// Adds { a record.
    fn append(&self, len: usize) -> [u8; 4] {
        // Before the write.
        self.check(len, "{ not // a comment")?; // and this goes
        self.write(len)
    }
}

fn append() {
    check('"');
}
"""


def sources(folder: Path, **files: str) -> Sources:
    """Writes the files, each into a folder of its own."""
    for name, text in files.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "code.rs").write_text(text)
    return Sources(folder)


def mutant(item: str, old: str, new: str = "") -> Mutant:
    return Mutant("early", "A check is missing.", "it", [], [Edit(item, old, new)])


def test_a_mutant_changes_only_the_code_that_it_quotes(tmp_path: Path) -> None:
    changed = sources(tmp_path, log=LOG).apply(mutant("Log::append", 'self.check(len, "{ not // a comment")?;', "true;"))
    assert list(changed.values()) == [LOG.replace('self.check(len, "{ not // a comment")?;', "true;")]


def test_all_edits_of_a_mutant_are_made(tmp_path: Path) -> None:
    edits = [
        Edit("Log::append", "self.write(len)", "w()"),
        Edit("append", "check('\"');", ""),
        Edit("Log::append", "len: usize", "_: u64"),
    ]
    changed = sources(tmp_path, log=LOG).apply(Mutant("early", "", "it", [], edits))
    expected = LOG.replace("self.write(len)", "w()").replace("check('\"');", "").replace("len: usize", "_: u64")
    assert list(changed.values()) == [expected]


def test_a_mutant_applies_after_a_move_and_in_another_layout(tmp_path: Path) -> None:
    moved = "impl Log {\n  fn append(&self) {\n    self.check(\n      len, // why\n    )?;\n  }\n}\n"
    found = sources(tmp_path, log="fn append() {}\n", store=moved)
    assert not found.check([mutant("Log::append", "self.check(len,)?;")])


def test_a_mutant_whose_code_is_gone_is_reported(tmp_path: Path) -> None:
    found = sources(tmp_path, log=LOG)
    assert found.check([mutant("Log::append", "check(size)")]) == ["early: no places of Log::append match: check(size)"]
    assert found.check([mutant("Log::put", "self.write(len)")]) == ["early: no item has the name Log::put"]


@pytest.mark.parametrize("comment", ["// self.seal();", "/* self.seal(); */"])
def test_code_in_a_comment_does_not_match(tmp_path: Path, comment: str) -> None:
    found = sources(tmp_path, log=f"fn close() {{\n    {comment}\n}}\n")
    assert found.check([mutant("close", "self.seal();")]) == ["early: no places of close match: self.seal();"]


def test_code_of_another_item_does_not_match(tmp_path: Path) -> None:
    assert sources(tmp_path, log=LOG).check([mutant("append", "self.write(len)")])


@pytest.mark.parametrize("second", ["impl Log { fn append() { self.write(len) } }", LOG])
def test_a_mutant_with_two_places_is_reported(tmp_path: Path, second: str) -> None:
    found = sources(tmp_path, log=LOG, store=second)
    assert found.check([mutant("Log::append", "self.write(len)")]) == ["early: 2 places of Log::append match: self.write(len)"]


def test_a_mutant_that_matches_twice_in_an_item_is_reported(tmp_path: Path) -> None:
    found = sources(tmp_path, log="const SIZE: usize = 4 + 4;\n")
    assert found.check([mutant("SIZE", "4")]) == ["early: 2 places of SIZE match: 4"]


TESTS = "fn a_seal_is_checked() {\n    assert(1);\n}\n\nfn another() {}\n"
CHECKED = Mutant("early", "", "it", ["seal_is"], [Edit("append", "check('\"');", "")])


def fingerprint_of(folder: Path, log: str = LOG, tests: str = TESTS, mutant: Mutant = CHECKED) -> str:
    (folder / "src").mkdir(exist_ok=True)
    (folder / "it").mkdir(exist_ok=True)
    return fingerprint(mutant, sources(folder / "src", log=log), sources(folder / "it", log=tests))


def test_a_verdict_stays_when_layout_comments_and_other_items_change(tmp_path: Path) -> None:
    log = LOG.replace("self.write(len)", "self.write(len + 1)").replace("fn append() {", "fn append() { // first\n")
    tests = TESTS.replace("    assert(1);", "assert(1); // again").replace("another", "one_more")
    assert fingerprint_of(tmp_path, log, tests) == fingerprint_of(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"log": LOG.replace("check('\"');", "check('\"'); write();")},
        {"tests": TESTS.replace("assert(1)", "assert(2)")},
        {"mutant": Mutant("early", "", "it", ["seal_is"], [Edit("append", "check('\"');", "check('x');")])},
        {"mutant": Mutant("early", "", "it", ["another"], CHECKED.edits)},
    ],
)
def test_a_verdict_is_outdated_when_the_edit_the_item_or_a_test_changes(tmp_path: Path, change: dict[str, Any]) -> None:
    assert fingerprint_of(tmp_path, **change) != fingerprint_of(tmp_path)


def test_filters_select_tests_by_module_and_name(tmp_path: Path) -> None:
    found = sources(tmp_path, log=TESTS, crash="fn a_seal_is_lost() {}\n")
    assert found.read_tests(["log::code::a_seal"]) == ["fn a_seal_is_checked ( ) { assert ( 1 ) ; }"]
    assert found.read_tests(["crash::"]) == ["fn a_seal_is_lost ( ) { }"]


def test_a_filter_selects_tests_by_module_and_name(tmp_path: Path) -> None:
    tests = sources(tmp_path, it="fn damage_is_reported() {}\n")
    assert tests.select("damage_is") == tests.select("it::code::damage") == {"damage_is_reported"}
    assert tests.select("damage_was") == set()
