use super::malformed::Malformed;

/// The topic that holds delayed messages until they are due; its queue id is the level - 1.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// The delay of a level that the table does not have.
const UNKNOWN_LEVEL_MS: i64 = 1000;

/// The delay of each delay level; levels count from 1 (docs/FORMAT.md, section Consume queue).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayLevels(Vec<i64>);

impl DelayLevels {
    /// RocketMQ's default `messageDelayLevel`.
    pub const ROCKETMQ: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

    /// Parses a broker's `messageDelayLevel`: numbers with a unit of s, m, h or d, separated by single spaces.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        text.split(' ').map(parse_level).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the highest level.
    pub fn max_level(&self) -> i32 {
        self.0.len() as i32
    }

    /// Returns the delay of a level in ms; 1,000 for a level that the table does not have.
    pub fn delay_ms(&self, level: i32) -> i64 {
        let index = usize::try_from(level).ok().and_then(|level| level.checked_sub(1));
        index.and_then(|index| self.0.get(index)).copied().unwrap_or(UNKNOWN_LEVEL_MS)
    }
}

impl Default for DelayLevels {
    fn default() -> Self {
        const SECOND: i64 = 1000;
        const MINUTE: i64 = 60 * SECOND;
        const HOUR: i64 = 60 * MINUTE;
        let seconds = [1, 5, 10, 30].map(|n| n * SECOND);
        let minutes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30].map(|n| n * MINUTE);
        let hours = [1, 2].map(|n| n * HOUR);
        Self(seconds.into_iter().chain(minutes).chain(hours).collect())
    }
}

fn parse_level(word: &str) -> Result<i64, Malformed> {
    let wrong = || {
        Malformed::new(
            0,
            format!(
                "{word:?} is not a delay level: write a number and s, m, h or d, as in {:?}",
                DelayLevels::ROCKETMQ
            ),
        )
    };
    let mut digits = word.chars();
    let unit = match digits.next_back() {
        Some('s') => 1000,
        Some('m') => 60 * 1000,
        Some('h') => 60 * 60 * 1000,
        Some('d') => 24 * 60 * 60 * 1000,
        _ => return Err(wrong()),
    };
    let number: i64 = digits.as_str().parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|ms| *ms >= 0).ok_or_else(wrong)
}
