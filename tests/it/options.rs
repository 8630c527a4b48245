//! The table of options in docs/ARCHITECTURE.md against the options themselves.

use std::collections::BTreeMap;

use mqstore::config::StoreConfig;

/// Rows of the table: option -> (RocketMQ's name, RocketMQ's default, ours).
fn documented() -> BTreeMap<String, [String; 3]> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/ARCHITECTURE.md")).unwrap();
    let table = text.split("| option | RocketMQ |").nth(1).unwrap().lines().skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        (
            cells[0].trim_matches('`').to_owned(),
            [cells[1], cells[2], cells[3]].map(str::to_owned),
        )
    })
    .collect()
}

/// Field -> value, as `{:#?}` prints them.
fn defaults() -> BTreeMap<String, String> {
    let printed = format!("{:#?}", StoreConfig::default());
    let fields = printed
        .lines()
        .filter_map(|line| line.trim().trim_end_matches(',').split_once(": "));
    fields
        .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
        .collect()
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
fn every_option_stands_in_the_documents_with_its_default() {
    let documented = documented();
    let defaults = defaults();
    assert_eq!(documented.keys().collect::<Vec<_>>(), defaults.keys().collect::<Vec<_>>());
    for (option, [rocketmq, rocketmq_default, ours]) in &documented {
        assert!(rocketmq == "none" || *rocketmq == camel_case(option), "{option}: {rocketmq}");
        let stated = match ours.as_str() {
            "as the files are" => "None",
            "the same" => rocketmq_default,
            value => value,
        };
        assert_eq!(defaults[option], stated, "{option}");
    }
}
