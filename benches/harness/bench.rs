//! One run of this program: its arguments, its directory, where results go.

use std::cell::{Cell, RefCell};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::instructions;
use super::machine::{Machine, Weather};
use super::row::{OURS, Round, Row};

/// Rounds of each row, after one that is dropped.
const ROUNDS: usize = 7;

/// What takes part in a row: ours, the limit or a peer. A call is one round and gives its figure, in the unit of the row.
pub struct Contender<'a> {
    pub name: String,
    pub round: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Contender<'a> {
    /// By its name: [`OURS`](super::row::OURS), [`LIMIT`](super::row::LIMIT) or that of a peer.
    pub fn new(name: impl Into<String>, round: impl FnMut() -> f64 + 'a) -> Self {
        Self {
            name: name.into(),
            round: Box::new(round),
        }
    }
}

/// One run.
pub struct Bench {
    /// Each row once, with tiny sizes.
    pub is_smoke: bool,
    is_server: bool,
    /// The work whose instructions another process counts.
    pub stepped: Option<String>,
    wanted: Vec<String>,
    rounds: usize,
    root: PathBuf,
    work: TempDir,
    commit: String,
    machine: RefCell<Machine>,
    failures: Cell<usize>,
}

impl Bench {
    /// `cargo bench` passes "--bench", `cargo test` does not: its run is a smoke run, as one with `BENCH_SMOKE` set is.
    pub fn of_arguments() -> Self {
        let (options, wanted): (Vec<String>, Vec<String>) =
            std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
        let is_smoke = number("BENCH_SMOKE").unwrap_or(0) > 0 || !options.iter().any(|option| option == "--bench");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
        fs::create_dir_all(&root).unwrap();
        let work = tempfile::tempdir_in(&root).unwrap();
        let machine = RefCell::new(Machine::new(work.path()));
        Self {
            is_smoke,
            stepped: instructions::asked(&options),
            is_server: options.iter().any(|option| option == "--serve"),
            wanted,
            rounds: if is_smoke {
                0
            } else {
                number("BENCH_ROUNDS").unwrap_or(ROUNDS).max(1)
            },
            root,
            work,
            commit: commit(),
            machine,
            failures: Cell::new(0),
        }
    }

    /// Whether this process answers another one that measures.
    pub fn is_server(&self) -> bool {
        self.is_server
    }

    /// Whether the row was asked for. All are where none is named.
    pub fn wants(&self, row: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted == row)
    }

    /// The first of two sizes, or the second one in a smoke run.
    pub fn size<T>(&self, whole: T, smoke: T) -> T {
        if self.is_smoke { smoke } else { whole }
    }

    /// A directory on the disk that is measured, empty, for the caller alone.
    pub fn dir(&self) -> TempDir {
        tempfile::tempdir_in(self.work.path()).unwrap()
    }

    /// As [`Bench::dir`], in memory. A smoke run takes the disk, because some machines have little room in memory.
    pub fn memory_dir(&self) -> TempDir {
        let memory = || tempfile::tempdir_in("/dev/shm");
        if self.is_smoke { self.dir() } else { memory().unwrap() }
    }

    /// How long a sync and a wake take now.
    pub fn weather(&self) -> Weather {
        self.machine.borrow_mut().measure()
    }

    /// Runs the rounds of a row: all that take part take turns in each, and the first round is dropped. Prints the row and adds it to the
    /// results.
    pub fn measure(&self, row: &Row, mut contenders: Vec<Contender<'_>>) {
        let mut rounds = Vec::new();
        for number in 0..=self.rounds {
            eprint!("\r{} {}: round {number} of {} ", row.name, row.params, self.rounds);
            let weather = self.weather();
            let figures = contenders.iter_mut().map(|one| (one.name.clone(), (one.round)())).collect();
            if number > 0 || self.is_smoke {
                rounds.push(Round { weather, figures });
            }
        }
        eprint!("\r\x1b[K");
        self.record(row, &rounds);
    }

    /// As [`Bench::measure`], of a figure that is the same in every round: a count. One over its bound fails the run.
    pub fn count(&self, row: &Row, figure: f64) {
        let weather = self.weather();
        self.record(
            row,
            &[Round {
                weather,
                figures: vec![(OURS.to_owned(), figure)],
            }],
        );
        if let Some(most) = row.target.at_most.filter(|most| figure > *most) {
            println!("  FAILED: at most {most} are allowed");
            self.failures.set(self.failures.get() + 1);
        }
    }

    fn record(&self, row: &Row, rounds: &[Round]) {
        row.print(rounds);
        let name = if self.is_smoke { "smoke.jsonl" } else { "results.jsonl" };
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.root.join(name))
            .unwrap();
        writeln!(file, "{}", row.json(rounds, &self.commit)).unwrap();
    }

    /// Ends the run: its exit status says whether every count is within its bound.
    pub fn end(self) {
        let failures = self.failures.get();
        drop(self);
        if failures > 0 {
            eprintln!("{failures} counts are over their bounds");
            std::process::exit(1);
        }
    }
}

/// The commit that is measured; "-dirty" if the checkout differs from it.
fn commit() -> String {
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty", "--exclude=*"])
        .output();
    let described = described.ok().filter(|output| output.status.success());
    described.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
