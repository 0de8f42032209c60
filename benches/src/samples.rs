//! Samples of a repeated operation and their percentiles.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Sorted times, never empty. In microseconds, which is finer than the repeatability of any measurement here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Samples {
    sorted_us: Vec<u64>,
}

impl Samples {
    pub(crate) fn new(times: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut sorted_us: Vec<u64> = times.into_iter().map(|time| time.as_micros() as u64).collect();
        sorted_us.sort_unstable();
        (!sorted_us.is_empty()).then_some(Self { sorted_us })
    }

    pub(crate) fn count(&self) -> usize {
        self.sorted_us.len()
    }

    pub(crate) fn p50(&self) -> Duration {
        self.percentile(50)
    }

    pub(crate) fn p95(&self) -> Duration {
        self.percentile(95)
    }

    pub(crate) fn p99(&self) -> Duration {
        self.percentile(99)
    }

    pub(crate) fn min(&self) -> Duration {
        self.percentile(0)
    }

    pub(crate) fn max(&self) -> Duration {
        self.percentile(100)
    }

    /// The percentile by nearest rank: the smallest sample that this share of all samples does not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.sorted_us.len() * percent).div_ceil(100).max(1);
        Duration::from_micros(self.sorted_us[rank - 1])
    }
}

/// Runs an operation and returns its duration.
pub(crate) fn timed<T>(operation: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = operation();
    (value, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: &[u64]) -> Samples {
        Samples::new(micros.iter().copied().map(Duration::from_micros)).unwrap()
    }

    #[test]
    fn percentiles_are_samples_that_were_seen() {
        let all: Vec<u64> = (1..=20).rev().collect();
        let samples = of(&all);
        assert_eq!(samples.p50(), Duration::from_micros(10));
        assert_eq!(samples.p95(), Duration::from_micros(19));
        assert_eq!(samples.p99(), Duration::from_micros(20));
        assert_eq!((samples.min(), samples.max()), (Duration::from_micros(1), Duration::from_micros(20)));
    }

    #[test]
    fn one_sample_is_every_percentile() {
        let samples = of(&[7]);
        assert_eq!(
            [samples.min(), samples.p50(), samples.p95(), samples.max()],
            [Duration::from_micros(7); 4]
        );
    }

    #[test]
    fn samples_cannot_be_empty() {
        assert!(Samples::new([]).is_none());
    }
}
