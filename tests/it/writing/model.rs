//! Random scripts compared with a model: the resulting directory equals the model's, byte for byte.

use std::fs;
use std::path::Path;

use mqstore::config::StoreConfig;
use mqstore::format::{BatchUnit, Message, encode_properties, encode_unit};
use mqstore::store::{AppendResult, MessageStore, OpenMode};
use proptest::prelude::*;

use super::{Place, append_producer_batch, contents, message, names, open_in, small, with};
use crate::counting_env::CountingEnv;
use crate::store_writer::StoreWriter;

#[derive(Debug, Clone)]
struct Draft {
    topic: u8,
    queue_id: i32,
    len: usize,
    keys: u8,
    is_commit: bool,
}

#[derive(Debug, Clone)]
enum Step {
    One(Draft),
    Many(Vec<Draft>),
    Together(Draft, Vec<usize>),
    Clock(i64),
    Flush,
    Dispatched,
    Reopen,
}

fn draft() -> impl Strategy<Value = Draft> {
    let fields = (
        0..4_u8,
        0..3_i32,
        prop_oneof![0..50_usize, 0..3000_usize],
        0..4_u8,
        any::<bool>(),
    );
    fields.prop_map(|(topic, queue_id, len, keys, is_commit)| Draft {
        topic,
        queue_id,
        len,
        keys,
        is_commit,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => draft().prop_map(Step::One),
        3 => prop::collection::vec(draft(), 1..60).prop_map(Step::Many),
        2 => (draft(), prop::collection::vec(0..900_usize, 1..12)).prop_map(|(draft, lens)| Step::Together(draft, lens)),
        2 => (-5000..20_000_i64).prop_map(Step::Clock),
        1 => Just(Step::Flush),
        1 => Just(Step::Dispatched),
        1 => Just(Step::Reopen),
    ]
}

impl Draft {
    fn message(&self, number: usize) -> Message<'static> {
        let keys = (0..self.keys).map(|n| format!("k{number}-{n}")).collect::<Vec<_>>().join(" ");
        let tag = format!("tag{}", number % 5);
        let properties: &[(&str, &str)] = if keys.is_empty() {
            &[]
        } else {
            &[("KEYS", &keys), ("TAGS", &tag)]
        };
        let mut made = with(message(&format!("topic{}", self.topic), self.queue_id, b""), properties).into_owned();
        made.body = vec![number as u8; self.len].into();
        made.sys_flag = if self.is_commit { 0x8 } else { 0 };
        made
    }
}

/// The store, and what must come out of it.
struct Script {
    env: CountingEnv,
    store: Option<MessageStore>,
    model: StoreWriter,
    appended: usize,
    last: Option<i64>,
}

impl Script {
    fn store(&self) -> &MessageStore {
        self.store.as_ref().unwrap()
    }

    /// Appends to the model what was appended to the store.
    fn expect(&mut self, messages: Vec<Message<'static>>, done: &[AppendResult]) {
        assert_eq!(messages.len(), done.len());
        self.appended += messages.len();
        for (message, done) in messages.into_iter().zip(done) {
            let store_time = done.appended.store_time;
            let offset = self.model.append(Message { store_time, ..message });
            assert_eq!(offset, done.appended.physical_offset);
            self.last = Some(offset);
        }
    }

    fn run(&mut self, step: Step, path: &Path, now: &mut i64) {
        match step {
            Step::One(draft) => {
                let message = draft.message(self.appended);
                let done = self.store().append(message.clone()).unwrap();
                self.expect(vec![message], &[done]);
            }
            Step::Many(drafts) => {
                let numbered = drafts.iter().enumerate();
                let messages: Vec<_> = numbered.map(|(n, draft)| draft.message(self.appended + n)).collect();
                let mut done = Vec::new();
                self.store().appender(None).append_all(messages.clone(), &mut done).unwrap();
                self.expect(messages, &done);
            }
            Step::Together(draft, lens) => {
                let common = Message {
                    sys_flag: 0,
                    ..draft.message(self.appended)
                };
                let properties = encode_properties([("UNIQ_KEY", "u")], true).unwrap();
                let bodies: Vec<Vec<u8>> = lens.iter().map(|len| vec![1; *len]).collect();
                let unit = |body: &Vec<u8>| {
                    let properties = &properties;
                    encode_unit(&BatchUnit {
                        flag: 3,
                        body,
                        properties,
                    })
                    .unwrap()
                };
                let body: Vec<u8> = bodies.iter().flat_map(unit).collect();
                let batch = Message {
                    body: body.into(),
                    ..common.clone()
                };
                let done = append_producer_batch(self.store(), &batch, None).unwrap();
                // The model appends one by one; a batch that moved to the next segment as a whole leaves it a BLANK to write
                // first.
                self.model
                    .wait_for_blocked(done.iter().map(|done| done.appended.wrote_bytes as usize).sum());
                let records = bodies.into_iter().map(|body| Message {
                    flag: 3,
                    body: body.into(),
                    properties: properties.clone().into(),
                    ..common.clone()
                });
                self.expect(records.collect(), &done);
            }
            Step::Clock(ms) => {
                *now += ms;
                self.env.set_now(*now);
            }
            Step::Flush => assert_eq!(self.store().flush().unwrap(), self.store().reader().physical_bounds().end),
            Step::Dispatched => {
                if let Some(last) = self.last {
                    self.store().wait_dispatched(last, Some(super::soon())).unwrap();
                }
            }
            Step::Reopen => {
                self.store.take().unwrap().close().unwrap();
                let store = open_in(&self.env, path, StoreConfig::default(), OpenMode::Existing);
                self.store = Some(store.unwrap());
            }
        }
    }
}

fn files(root: &Path, dir: &str) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let dir = root.join(dir);
    if dir.exists() { contents(&dir) } else { Vec::new() }
}

fn index_files(root: &Path) -> Vec<Vec<u8>> {
    let dir = root.join("index");
    names(&dir)
        .into_iter()
        .map(|name| fs::read(dir.join(name)).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_script_leaves_the_directory_of_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let (place, expected) = (Place::new(), Place::new());
        let (env, store) = place.create_counting(small());
        let mut now = 1_700_000_000_000;
        env.set_now(now);
        let model = StoreWriter::small(&expected.store);
        let mut script = Script { env, store: Some(store), model, appended: 0, last: None };
        for step in steps {
            script.run(step, &place.store, &mut now);
        }
        script.store().close().unwrap();
        script.model.finish(true);
        prop_assert!(files(&place.store, "commitlog") == files(&expected.store, "commitlog"));
        prop_assert!(files(&place.store, "consumequeue") == files(&expected.store, "consumequeue"));
        prop_assert!(index_files(&place.store) == index_files(&expected.store));
        let reader = place.reader();
        prop_assert!(reader.recovery().clean_exit && reader.recovery().undispatched == 0);
    }
}
