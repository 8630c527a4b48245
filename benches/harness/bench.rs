//! A run of this program: its arguments, its directories, its results.

use std::cell::{Cell, RefCell};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::instructions;
use super::machine::{Machine, Weather};
use super::row::{OURS, Round, Row};

/// The rounds of each row, after a warm-up round that is dropped.
const ROUNDS: usize = 7;

/// A participant of a row: mqstore, the limit or a peer. A call of `round` returns its figure for one round, in the unit of the
/// row.
pub struct Contender<'a> {
    pub name: String,
    pub round: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Contender<'a> {
    /// Creates a participant named [`OURS`](super::row::OURS), [`LIMIT`](super::row::LIMIT) or as a peer.
    pub fn new(name: impl Into<String>, round: impl FnMut() -> f64 + 'a) -> Self {
        Self {
            name: name.into(),
            round: Box::new(round),
        }
    }
}

/// A run of this program.
pub struct Bench {
    /// Set if each row runs once with tiny sizes.
    pub is_smoke: bool,
    is_server: bool,
    /// The work whose instructions another process counts, if this process is single-stepped.
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
    /// Reads the arguments. `cargo bench` passes "--bench", `cargo test` does not: then this is a smoke run, as with `BENCH_SMOKE`.
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

    /// Returns true if this process answers another process, which measures.
    pub fn is_server(&self) -> bool {
        self.is_server
    }

    /// Returns true if the row was requested; without names all rows are.
    pub fn wants(&self, row: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted == row)
    }

    /// Returns the first of two sizes, or the second one in a smoke run.
    pub fn size<T>(&self, whole: T, smoke: T) -> T {
        if self.is_smoke { smoke } else { whole }
    }

    /// Returns an empty directory on the measured disk, for the caller only.
    pub fn dir(&self) -> TempDir {
        tempfile::tempdir_in(self.work.path()).unwrap()
    }

    /// Returns a [`Bench::dir`] in memory. A smoke run takes the disk, because some machines have little memory.
    pub fn memory_dir(&self) -> TempDir {
        let memory = || tempfile::tempdir_in("/dev/shm");
        if self.is_smoke { self.dir() } else { memory().unwrap() }
    }

    /// Measures the current latency of a sync and of a wake.
    pub fn weather(&self) -> Weather {
        self.machine.borrow_mut().measure()
    }

    /// Runs the rounds of a row. In each round all participants take turns; the first round is dropped. Prints the row and adds it
    /// to the results.
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

    /// Records a figure that is the same in every round, such as a count. A figure over its bound fails the run.
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

    /// Ends the run with an exit status: 1 if a count exceeded its bound.
    pub fn end(self) {
        let failures = self.failures.get();
        drop(self);
        if failures > 0 {
            eprintln!("{failures} counts are over their bounds");
            std::process::exit(1);
        }
    }
}

/// Returns the measured commit, with "-dirty" if the checkout differs from it.
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
