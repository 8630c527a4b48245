//! Every committed input of the fuzz targets, without a fuzzing engine.

use std::fs;
use std::path::Path;

use super::image;

#[path = "../../../fuzz/checks/body.rs"]
mod body;
#[path = "../../../fuzz/checks/index.rs"]
mod index;
#[path = "../../../fuzz/checks/record.rs"]
mod record;
#[path = "../../../fuzz/checks/small_files.rs"]
mod small_files;
#[path = "../../../fuzz/checks/store.rs"]
mod store;

type Check = fn(&[u8]);

const CHECKS: [(&str, Check); 5] = [
    ("body", body::check),
    ("index", index::check),
    ("record", record::check),
    ("small_files", small_files::check),
    ("store", store::check),
];

#[test]
fn every_input_of_the_fuzz_targets_is_data_or_an_error() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let targets = fs::read_dir(&corpus).unwrap();
    let mut names: Vec<_> = targets.map(|target| target.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, CHECKS.map(|(name, _)| name));
    for (name, check) in CHECKS {
        let mut count = 0;
        for input in fs::read_dir(corpus.join(name)).unwrap() {
            let path = input.unwrap().path();
            println!("{}", path.display());
            check(&fs::read(path).unwrap());
            count += 1;
        }
        assert!(count > 2, "{name} has {count} inputs");
    }
}
