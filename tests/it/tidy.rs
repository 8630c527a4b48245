//! The architecture as a test: it reads the sources and the documents and fails with `file:line` messages.
//!
//! Each check takes a [`Tree`], so that its own tests can plant a small one in memory.

mod citations;
mod documents;
mod exports;
mod faces;
mod habits;
mod modules;
mod order;
mod python_errors;
mod steps;
mod tree;
mod types;
mod words;

use tree::{Finding, Tree};

/// Fails with one line for each finding.
fn assert_none(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} findings\n{}\n", lines.len(), lines.join("\n"));
}

/// The findings as text, for the checks' own tests.
fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_module_imports_only_from_what_is_declared_above_it() {
    assert_none(&order::upward_imports(&Tree::of_this_repository()));
}

#[test]
fn a_room_re_exports_only_what_is_used_outside_of_it() {
    assert_none(&exports::unused(&Tree::of_this_repository()));
}

#[test]
fn every_module_is_declared_and_says_what_it_is() {
    assert_none(&modules::undeclared_or_undescribed(&Tree::of_this_repository()));
}

#[test]
fn unsafe_is_only_where_it_may_be_and_says_why_it_holds() {
    assert_none(&habits::misplaced_unsafe(&Tree::of_this_repository()));
}

#[test]
fn no_function_is_over_70_lines_and_no_file_over_800() {
    assert_none(&habits::too_long(&Tree::of_this_repository()));
}

#[test]
fn no_file_holds_only_impl_blocks_of_types_of_other_files() {
    assert_none(&types::stray_impls(&Tree::of_this_repository()));
}

#[test]
fn no_error_of_python_code_is_dropped_in_the_bindings() {
    assert_none(&python_errors::dropped(&Tree::of_this_repository()));
}

#[test]
fn no_text_of_the_core_names_an_argument_of_python_or_a_command() {
    assert_none(&faces::foreign_words(&Tree::of_this_repository()));
}

#[test]
fn every_face_has_words_for_every_remedy() {
    assert_none(&faces::unworded(&Tree::of_this_repository()));
}

#[test]
fn python_has_words_for_every_fix() {
    assert_none(&faces::unworded_fixes(&Tree::of_this_repository()));
}

#[test]
fn no_comment_puts_work_off() {
    assert_none(&habits::left_for_later(&Tree::of_this_repository()));
}

#[test]
fn every_name_and_path_in_the_documents_exists() {
    assert_none(&documents::unresolved(&Tree::of_this_repository()));
}

#[test]
fn every_section_that_the_sources_cite_exists() {
    assert_none(&citations::unresolved(&Tree::of_this_repository()));
}

#[test]
fn the_document_has_every_step_in_its_order() {
    assert_none(&steps::out_of_step(&Tree::of_this_repository()));
}

#[test]
fn every_dependency_says_why_it_is_there() {
    assert_none(&documents::unexplained_dependencies(&Tree::of_this_repository()));
}

#[test]
fn no_comment_or_page_uses_a_phrase_of_a_private_dialect() {
    assert_none(&words::dialect(&Tree::of_this_repository()));
}

#[test]
fn no_name_of_a_test_is_over_70_characters() {
    assert_none(&words::long_names(&Tree::of_this_repository()));
}
