//! The broker port of a master that the test plays: answers requests for settings as the test sets them.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use mqstore::ha::RemotingCommand;
use serde_json::{Value, json};

pub(crate) const TOPICS: i32 = 21;
pub(crate) const RUNTIME_INFO: i32 = 28;
pub(crate) const CONSUMER_OFFSETS: i32 = 43;
pub(crate) const DELAY_OFFSETS: i32 = 45;
pub(crate) const GROUPS: i32 = 201;

/// A broker, until the test ends.
pub(crate) struct PlayedBroker {
    pub(crate) address: SocketAddr,
    answers: Arc<Mutex<BTreeMap<i32, String>>>,
    /// The rounds of questions that were answered.
    rounds: Arc<AtomicUsize>,
}

impl PlayedBroker {
    /// A broker without topics, groups and progress, and with an empty log.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let empty = [
            (TOPICS, json!({ "topicConfigTable": {} })),
            (GROUPS, json!({ "subscriptionGroupTable": {} })),
            (CONSUMER_OFFSETS, json!({ "offsetTable": {} })),
            (DELAY_OFFSETS, json!({ "offsetTable": {} })),
            (RUNTIME_INFO, bounds(&(0..0))),
        ];
        let empty = empty.map(|(code, body)| (code, body.to_string()));
        let answers = Arc::new(Mutex::new(BTreeMap::from(empty)));
        let rounds = Arc::<AtomicUsize>::default();
        let (served, counted) = (answers.clone(), rounds.clone());
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (served, counted) = (served.clone(), counted.clone());
                thread::spawn(move || serve(&stream, &served, &counted));
            }
        });
        Self {
            address,
            answers,
            rounds,
        }
    }

    /// Answers this from now on.
    pub(crate) fn set(&self, code: i32, body: &Value) {
        self.set_text(code, &body.to_string());
    }

    pub(crate) fn set_text(&self, code: i32, body: &str) {
        self.answers.lock().unwrap().insert(code, body.to_owned());
    }

    /// Answers this progress of the group "billing" in queue 0 of a topic from now on.
    pub(crate) fn set_progress(&self, topic: &str, offset: i64) {
        let name = format!("{topic}@billing");
        self.set(CONSUMER_OFFSETS, &json!({ "offsetTable": { name: { "0": offset } } }));
    }

    /// Says from now on that its log ends there.
    pub(crate) fn set_log_end(&self, end: i64) {
        self.set_log(0..end);
    }

    /// Says from now on that its log has these bounds.
    pub(crate) fn set_log(&self, log: Range<i64>) {
        self.set(RUNTIME_INFO, &bounds(&log));
    }

    /// Does not know this request from now on.
    pub(crate) fn refuse(&self, code: i32) {
        self.answers.lock().unwrap().remove(&code);
    }

    /// The rounds of questions that were answered.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.load(Ordering::SeqCst)
    }
}

fn bounds(log: &Range<i64>) -> Value {
    json!({ "table": { "commitLogMinOffset": log.start.to_string(), "commitLogMaxOffset": log.end.to_string() } })
}

fn serve(mut stream: &TcpStream, answers: &Mutex<BTreeMap<i32, String>>, rounds: &AtomicUsize) {
    while let Ok(Some(request)) = RemotingCommand::read(&mut stream, 1 << 20) {
        let body = answers.lock().unwrap().get(&request.code).cloned();
        let mut answer = request.answer(if body.is_some() { 0 } else { 3 }, None);
        answer.body = body.unwrap_or_default().into_bytes();
        if stream.write_all(&answer.encode().unwrap()).is_err() {
            return;
        }
        rounds.fetch_add(usize::from(request.code == RUNTIME_INFO), Ordering::SeqCst);
    }
}
