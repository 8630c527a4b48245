//! RocketMQ's own store, in a process that answers one round after another. `benches/compare/rocketmq_rounds.py` starts it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::bench::Bench;

/// The versions that are measured; `BENCH_ROCKETMQ` names others, or none.
const VERSIONS: &str = "5.3.3 5.5.1";

/// A store of one version.
pub struct RocketMq {
    pub name: String,
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    _dir: TempDir,
}

/// What a round of puts found.
pub struct Puts {
    pub messages: f64,
    /// From the first start of a producer to the last end of one.
    pub ns: f64,
}

impl RocketMq {
    /// A store of each version, with these options of the harness in `tests/interop`. None in a smoke run, and none where Java or Maven is
    /// missing.
    pub fn start_all(bench: &Bench, options: &[&str]) -> Vec<Self> {
        let versions = std::env::var("BENCH_ROCKETMQ").unwrap_or_else(|_| VERSIONS.to_owned());
        let versions: Vec<&str> = bench.size(versions.split_whitespace().collect(), Vec::new());
        versions
            .into_iter()
            .filter_map(|version| Self::start(bench, version, options))
            .collect()
    }

    fn start(bench: &Bench, version: &str, options: &[&str]) -> Option<Self> {
        let dir = bench.dir();
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
        // First the command is repeated, then the store is warm.
        if started.answer().is_none() || started.answer().is_none() {
            println!("RocketMQ {version} is not measured: it did not start");
            return None;
        }
        Some(started)
    }

    /// Puts messages from `producers` threads until there are so many of them or the time is over.
    pub fn put(&mut self, body: usize, producers: usize, messages: usize, milliseconds: u64) -> Puts {
        let answer = self.ask(&format!("put={body},{producers},{messages},{milliseconds}"));
        Puts {
            messages: answer["messages"].as_f64().unwrap(),
            ns: answer["ns"].as_f64().unwrap(),
        }
    }

    /// The median time, in microseconds, from the start of a put until its message is in its queue.
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
        // The end of its input ends it.
        self.questions = None;
        let _ = self.process.wait();
    }
}
