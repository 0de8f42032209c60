//! Formatting of numbers with units.

use std::time::Duration;

use crate::figures::Measured;
use crate::goals::{Goal, Unit};

/// Formats a duration with at most three significant digits.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s >= 10.0 => format!("{s:.1} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.01 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.001 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

pub(super) fn bytes(count: f64) -> String {
    if count >= 1e9 { format!("{:.2} GB", count / 1e9) } else { format!("{:.1} MB", count / 1e6) }
}

pub(super) fn ratio(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(v) if v >= 10.0 => format!("{v:.0} ×"),
        Some(v) if v >= 2.0 => format!("{v:.1} ×"),
        Some(v) if v >= 1.0 => format!("{v:.2} ×"),
        Some(v) => format!("1/{:.1}", 1.0 / v),
    }
}

/// The main number of a figure, and its details.
pub(super) fn figure(measured: Option<&Measured>) -> (String, String) {
    match measured {
        None => ("–".to_owned(), "not run".to_owned()),
        Some(Measured::Absent(reason) | Measured::Failed(reason)) => ("–".to_owned(), reason.clone()),
        Some(Measured::Bytes(count)) => (bytes(*count as f64), String::new()),
        Some(Measured::Transfer { bytes, micros }) => {
            let time = Duration::from_micros(*micros);
            (duration(time), format!("{:.1} MB/s", *bytes as f64 / 1e6 / time.as_secs_f64().max(1e-6)))
        }
        Some(Measured::Times(samples)) => (
            duration(samples.p50()),
            format!(
                "p95 {}, p99 {}, {} to {}, {} runs",
                duration(samples.p95()),
                duration(samples.p99()),
                duration(samples.min()),
                duration(samples.max()),
                samples.count()
            ),
        ),
    }
}

pub(super) fn goal(goal: &Goal) -> (String, String) {
    match goal.unit {
        Unit::Ratio => (ratio(goal.measured), ratio(Some(goal.limit))),
        Unit::Seconds => {
            let shown = |seconds| duration(Duration::from_secs_f64(seconds));
            (goal.measured.map_or_else(|| "–".to_owned(), shown), shown(goal.limit))
        }
        Unit::Bytes => (goal.measured.map_or_else(|| "–".to_owned(), bytes), bytes(goal.limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_fitting_units() {
        let shown =
            [12_345_000, 1_234_000, 123_400, 9_870, 321].map(|us| duration(Duration::from_micros(us)));
        assert_eq!(shown, ["12.3 s", "1.23 s", "123 ms", "9.9 ms", "321 µs"]);
    }

    #[test]
    fn ratios_below_one_are_shares() {
        assert_eq!([None, Some(0.125), Some(1.94), Some(31.0)].map(ratio), ["–", "1/8.0", "1.94 ×", "31 ×"]);
    }

    #[test]
    fn transfer_shows_its_rate() {
        let shown = figure(Some(&Measured::transfer(100 << 20, Duration::from_secs(2))));
        assert_eq!(shown, ("2.00 s".to_owned(), "52.4 MB/s".to_owned()));
    }
}
