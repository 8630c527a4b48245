//! RocketMQ's own store, in a process that answers one round after another. `benches/compare/rocketmq_rounds.py` starts it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use mqstore::config::Sizes;
use serde_json::Value;
use tempfile::TempDir;

use super::bench::Bench;
use super::workload::copy_store;

/// The measured versions; `BENCH_ROCKETMQ` names others, or none.
const VERSIONS: &str = "5.3.3 5.5.1";

/// A store of one version.
pub struct RocketMq {
    pub name: String,
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    _dir: TempDir,
}

/// The result of a round.
pub struct Round {
    pub messages: f64,
    /// The time of the puts, from the first start of a producer to the last end of one.
    pub ns: f64,
}

impl RocketMq {
    /// Starts a store of each version with these options of the harness in `tests/interop`. Returns no store in a smoke run, or
    /// without Java or Maven.
    pub fn start_all(bench: &Bench, options: &[&str]) -> Vec<Self> {
        Self::start_each(bench, options, |_| {})
    }

    /// Starts a store of each version on a copy of this store of ours, with our smaller sizes.
    pub fn start_all_on(bench: &Bench, store: &Path) -> Vec<Self> {
        let Sizes {
            commit_log,
            consume_queue,
            index,
        } = Sizes::SMALL;
        let options = [
            format!("segment={commit_log}"),
            format!("queue={consume_queue}"),
            format!("slots={}", index.slots),
            format!("items={}", index.items),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Self::start_each(bench, &options, |path| copy_store(store, path, |_| {}))
    }

    fn start_each(bench: &Bench, options: &[&str], make: impl Fn(&Path)) -> Vec<Self> {
        let versions = std::env::var("BENCH_ROCKETMQ").unwrap_or_else(|_| VERSIONS.to_owned());
        let versions: Vec<&str> = bench.size(versions.split_whitespace().collect(), Vec::new());
        versions
            .into_iter()
            .filter_map(|version| {
                let dir = bench.dir();
                make(&dir.path().join("store"));
                Self::start(dir, version, options)
            })
            .collect()
    }

    fn start(dir: TempDir, version: &str, options: &[&str]) -> Option<Self> {
        let mut process = Command::new(std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned()))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/compare/rocketmq_rounds.py"))
            .arg(version)
            .arg(dir.path().join("store"))
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let questions = process.stdin.take();
        let answers = BufReader::new(process.stdout.take()?);
        let mut started = Self {
            name: format!("RocketMQ {version}"),
            process,
            questions,
            answers,
            _dir: dir,
        };
        // The first answer repeats the command, the second one means that the store is warm.
        if started.answer().is_none() || started.answer().is_none() {
            println!("RocketMQ {version} is not measured: it did not start");
            return None;
        }
        Some(started)
    }

    /// Puts messages from `producers` threads until `messages` of them are put or the time is over.
    pub fn put(&mut self, body: usize, producers: usize, messages: usize, milliseconds: u64) -> Round {
        self.round(&format!("put={body},{producers},{messages},{milliseconds}"))
    }

    /// Returns the nanoseconds for a query. Each query is for the key of one message, "order-0", "order-1", ..., in random order.
    pub fn query(&mut self, keys: usize) -> f64 {
        let round = self.round(&format!("query={keys}"));
        round.ns / round.messages
    }

    /// Returns the nanoseconds for a message of queue 0 that a consumer pulls from its start, 32 in a call.
    pub fn pull(&mut self, messages: usize) -> f64 {
        let round = self.round(&format!("pull={messages}"));
        round.ns / round.messages
    }

    fn round(&mut self, question: &str) -> Round {
        let answer = self.ask(question);
        Round {
            messages: answer["messages"].as_f64().unwrap(),
            ns: answer["ns"].as_f64().unwrap(),
        }
    }

    /// Returns the median time, in microseconds, from the start of a put until its message is in its queue.
    pub fn visible(&mut self, body: usize, messages: usize) -> f64 {
        self.ask(&format!("visible={body},{messages}"))["median_ns"].as_f64().unwrap() / 1e3
    }

    fn ask(&mut self, question: &str) -> Value {
        writeln!(self.questions.as_mut().unwrap(), "{question}").unwrap();
        self.answer().unwrap()
    }

    fn answer(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}

impl Drop for RocketMq {
    fn drop(&mut self) {
        // The process ends at the end of its input.
        self.questions = None;
        let _ = self.process.wait();
    }
}
