//! A row of the results: its figures, its ratios, and its verdict.

use serde_json::{Map, Value, json};

use super::machine::Weather;
use super::quantile::quantile;

/// The largest variation of the sync latency between rounds. A row that waits for the disk is refused if it is exceeded.
pub const MOST_SPREAD: f64 = 1.5;
/// The names of participants.
pub const OURS: &str = "ours";
pub const LIMIT: &str = "limit";

/// The description of a measurement, and its target.
pub struct Row {
    pub name: &'static str,
    pub params: Value,
    /// A unit that ends in "/s" is a rate: higher is better. For any other unit lower is better.
    pub unit: &'static str,
    pub target: Target,
    /// Set if the figure depends on the latency of a sync.
    pub waits_for_disk: bool,
}

/// The target of a row; `None` means no target.
#[derive(Default)]
pub struct Target {
    /// The least ratio to the limit.
    pub ratio_limit: Option<f64>,
    /// The least speedup over each `RocketMQ`.
    pub ratio_rocketmq: Option<f64>,
    /// The largest figure of ours, in the unit of the row.
    pub at_most: Option<f64>,
}

impl Target {
    /// Returns a target as a ratio to the limit.
    pub fn of_limit(ratio: f64) -> Self {
        Self {
            ratio_limit: Some(ratio),
            ..Self::default()
        }
    }

    /// Returns a target as a bound of our figure.
    pub fn at_most(figure: f64) -> Self {
        Self {
            at_most: Some(figure),
            ..Self::default()
        }
    }

    fn json(&self) -> Value {
        let bounds = [
            ("ratio_limit", self.ratio_limit),
            ("ratio_rocketmq", self.ratio_rocketmq),
            ("at_most", self.at_most),
        ];
        let given = bounds
            .into_iter()
            .filter_map(|(name, bound)| Some((name.to_owned(), json!(bound?))));
        Value::Object(given.collect())
    }
}

/// A round: the state of the machine, and the figure of each participant.
pub struct Round {
    pub weather: Weather,
    pub figures: Vec<(String, f64)>,
}

impl Round {
    fn figure(&self, name: &str) -> Option<f64> {
        self.figures
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, figure)| *figure)
    }

    fn json(&self) -> Value {
        let mut round: Map<String, Value> = self
            .figures
            .iter()
            .map(|(name, figure)| (name.clone(), json!(figure)))
            .collect();
        round.insert("sync_us".to_owned(), json!(self.weather.sync));
        round.insert("wake_us".to_owned(), json!(self.weather.wake));
        Value::Object(round)
    }
}

impl Row {
    fn is_rate(&self) -> bool {
        self.unit.ends_with("/s")
    }

    /// Returns median and best figure of a participant.
    pub fn figures(&self, rounds: &[Round], name: &str) -> Option<(f64, f64)> {
        let all: Vec<f64> = rounds.iter().filter_map(|round| round.figure(name)).collect();
        let best = if self.is_rate() { f64::max } else { f64::min };
        let best = all.iter().copied().reduce(best)?;
        Some((quantile(all, 0.5), best))
    }

    /// Returns the speedup over a participant: the median of the ratios within each round, because only figures of one round are
    /// comparable.
    fn ratio(&self, rounds: &[Round], name: &str) -> Option<f64> {
        let of_round = |round: &Round| {
            let (ours, other) = (round.figure(OURS)?, round.figure(name)?);
            Some(if self.is_rate() { ours / other } else { other / ours })
        };
        let all: Vec<f64> = rounds.iter().filter_map(of_round).collect();
        (!all.is_empty()).then(|| quantile(all, 0.5))
    }

    /// Returns the variation of the sync latency, if it is too large for this row.
    pub fn refusal(&self, rounds: &[Round]) -> Option<f64> {
        let syncs = || rounds.iter().map(|round| round.weather.sync);
        let spread = syncs().fold(0.0, f64::max) / syncs().fold(f64::MAX, f64::min);
        (self.waits_for_disk && spread > MOST_SPREAD).then_some(spread)
    }

    /// Returns the JSON object for the results. A refused row has no ratios.
    pub fn json(&self, rounds: &[Round], commit: &str) -> Value {
        let median = |name: &str| self.figures(rounds, name).map(|(median, _)| median);
        let is_refused = self.refusal(rounds).is_some();
        let ratio = |name: &str| self.ratio(rounds, name).filter(|_| !is_refused);
        let names: Vec<&String> = rounds
            .iter()
            .take(1)
            .flat_map(|round| &round.figures)
            .map(|(name, _)| name)
            .collect();
        let peers = || names.iter().filter(|name| **name != OURS && **name != LIMIT);
        json!({
            "row": self.name,
            "params": self.params,
            "ours": median(OURS),
            "limit": median(LIMIT),
            "peers": peers().map(|name| ((*name).clone(), json!(median(name)))).collect::<Map<_, _>>(),
            "unit": self.unit,
            "ratio_limit": ratio(LIMIT),
            "ratio_peers": peers().map(|name| ((*name).clone(), json!(ratio(name)))).collect::<Map<_, _>>(),
            "target": self.target.json(),
            "rounds": rounds.iter().map(Round::json).collect::<Vec<_>>(),
            "commit": commit,
        })
    }

    /// Prints median, best figure and speedup for each participant.
    pub fn print(&self, rounds: &[Round]) {
        let params: Vec<String> = self
            .params
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        println!("{} {}  ({})", self.name, params.join(" "), self.unit);
        let names = rounds.iter().take(1).flat_map(|round| &round.figures).map(|(name, _)| name);
        for name in names {
            let (median, best) = self.figures(rounds, name).unwrap();
            let ratio = self.ratio(rounds, name).filter(|_| name != OURS);
            let ratio = ratio.map_or(String::new(), |ratio| format!("   ratio {ratio:.2}"));
            let digits = if best < 100.0 { 3 } else { 0 };
            println!("  {name:<24} median {median:>14.digits$}   best {best:>14.digits$}{ratio}");
        }
        if let Some(spread) = self.refusal(rounds) {
            println!("  refused: the latency of a sync varied {spread:.1}-fold between the rounds");
        }
    }
}
