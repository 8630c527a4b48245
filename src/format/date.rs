use std::ops::Range;

/// Days from 1 March of the year 0 to 1970.
const BEFORE_1970: i64 = 719_468;

/// A day of the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// The astronomical year: there is a year 0.
    pub year: i64,
    /// The month, from 1.
    pub month: i64,
    /// The day of the month, from 1.
    pub day: i64,
}

impl Date {
    /// Returns the date `days` days after 1 January 1970; `None` on overflow.
    pub fn of(days: i64) -> Option<Self> {
        // Counting years from March makes a leap day the last day of its year. 400 years have 146,097 days.
        let days = days.checked_add(BEFORE_1970)?;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Some(Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
        })
    }
}

/// Returns a time in ms since 1970 as text, in UTC.
pub fn utc_text(ms: i64) -> String {
    const DAY: i64 = 86_400_000;
    let Some(Date { year, month, day }) = Date::of(ms.div_euclid(DAY)) else {
        return format!("{ms} ms since 1970");
    };
    let of_day = ms.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    let rest = of_day % 1000;
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{rest:03} UTC")
}

/// The rounding of a time to whole ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// To the last ms that is not after the time.
    Down,
    /// To the first ms that is not before the time.
    Up,
}

impl Round {
    /// Rounds a time in units of 1/`per_ms` ms to whole ms.
    pub fn to_ms(self, time: i64, per_ms: i64) -> i64 {
        let is_between = self == Self::Up && time.rem_euclid(per_ms) != 0;
        time.div_euclid(per_ms) + i64::from(is_between)
    }
}

/// The start of 1980 and of 2200, in seconds since 1970.
const PLAUSIBLE: Range<i64> = 315_532_800..7_258_118_400;

/// Returns the unit that a number given as ms since 1970 probably has, and what to do. It is the unit in which the number is a time
/// between 1980 and 2200.
pub fn mistaken_unit(ms: i64) -> Option<&'static str> {
    if PLAUSIBLE.contains(&ms) {
        Some("seconds: multiply it by 1000")
    } else if PLAUSIBLE.contains(&(ms / 1_000_000)) || PLAUSIBLE.contains(&(ms / 1_000_000_000)) {
        Some("microseconds or nanoseconds: divide it")
    } else {
        None
    }
}
