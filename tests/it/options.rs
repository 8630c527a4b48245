//! The table of options: the page docs/CONFIG.md is made from it, and its rows hold together.

use mqstore::config::{StoreConfig, StoreOption};

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CONFIG.md")).unwrap()
}

/// The rows of the page.
fn rows() -> String {
    let row = |option: StoreOption| {
        let StoreOption {
            name,
            rocketmq,
            unit,
            default,
            accepted,
            text,
        } = option;
        format!("| `{name}` | {rocketmq} | {unit} | `{default}` | {accepted} |{text} |\n")
    };
    StoreConfig::options().into_iter().map(row).collect()
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap().to_owned();
    words
        .fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
        .replace("Crc", "CRC")
        // As RocketMQ spells it.
        .replace("armMapped", "armMaped")
}

#[test]
fn the_page_of_options_has_the_rows_of_the_table() {
    let rows = rows();
    if !page().contains(&rows) {
        let made = concat!(env!("CARGO_TARGET_TMPDIR"), "/options.md");
        std::fs::write(made, rows).unwrap();
        panic!("docs/CONFIG.md differs from the table in src/config.rs: {made} has the right rows");
    }
}

#[test]
fn the_name_of_an_option_is_that_of_rocketmq_in_snake_case() {
    for option in StoreConfig::options() {
        assert!(
            option.rocketmq.is_empty() || option.rocketmq == camel_case(option.name),
            "{option:?}"
        );
    }
}

#[test]
fn the_defaults_are_accepted_and_each_bound_is_named_by_its_refusal() {
    StoreConfig::default().validate().unwrap();
    let refused = [
        StoreConfig {
            flush_interval_commit_log: 0,
            ..StoreConfig::default()
        },
        StoreConfig {
            access_message_in_memory_max_ratio: 101,
            ..StoreConfig::default()
        },
        StoreConfig {
            transient_store_pool_size: 0,
            ..StoreConfig::default()
        },
        StoreConfig {
            mapped_file_size_commit_log: Some(4095),
            ..StoreConfig::default()
        },
    ];
    let texts = refused.map(|config| config.validate().unwrap_err().to_string());
    let expected = [
        "flush_interval_commit_log is 0: expected 1 or more (ms)",
        "access_message_in_memory_max_ratio is 101: expected 0 to 100 (percent)",
        "transient_store_pool_size is 0: expected 1 to 1024 (buffers)",
        "mapped_file_size_commit_log is 4095: expected a multiple of 4096 from 4096 to 2147479552 (2 GiB - 4 KiB)",
    ];
    assert_eq!(texts, expected);
}
