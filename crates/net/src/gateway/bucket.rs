//! Limits the rate of a VM: a token bucket of bytes, or of frames, that fills at the allowed rate.
//!
//! A frame passes even if the bucket holds too little, and the next one waits for the debt: frames are never cut or
//! dropped to hold the rate.

use std::time::Duration;

use tokio::time::Instant;

/// Size of a burst after a quiet time, as a share of one second's amount.
const BURST: f64 = 0.05;

/// A bucket smaller than this would make every large frame wait.
const LEAST_BURST: f64 = 128.0 * 1024.0;

#[derive(Debug)]
pub(crate) struct Bucket {
    /// Bytes or frames per second. `None`: unlimited.
    rate: Option<f64>,
    least_burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(mbps: Option<u32>, now: Instant) -> Self {
        let mut bucket = Self { rate: None, least_burst: LEAST_BURST, tokens: 0.0, filled: now };
        bucket.set_rate(mbps);
        bucket.tokens = bucket.burst();
        bucket
    }

    /// A bucket of this many frames per second.
    pub(crate) fn of_frames(rate: u32, now: Instant) -> Self {
        let rate = Some(f64::from(rate.max(1)));
        let mut bucket = Self { rate, least_burst: 1.0, tokens: 0.0, filled: now };
        bucket.tokens = bucket.burst();
        bucket
    }

    pub(crate) fn set_rate(&mut self, mbps: Option<u32>) {
        self.rate = mbps.map(|mbps| f64::from(mbps.max(1)) * 1_000_000.0 / 8.0);
        self.tokens = self.tokens.min(self.burst());
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    /// Takes this amount and returns how long to wait before the next.
    pub(crate) fn take(&mut self, amount: usize, now: Instant) -> Option<Duration> {
        let rate = self.rate?;
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = now;
        self.tokens = (self.tokens + since * rate).min(self.burst()) - amount as f64;
        (self.tokens < 0.0).then(|| Duration::from_secs_f64(-self.tokens / rate))
    }

    fn burst(&self) -> f64 {
        self.rate.map_or(0.0, |rate| (rate * BURST).max(self.least_burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_passes_rate_plus_one_burst() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Some(80), start);
        let (mut now, mut passed) = (start, 0);
        while now - start < Duration::from_secs(1) {
            passed += 65_000;
            now += bucket.take(65_000, now).unwrap_or_default();
        }
        let allowed = 10_000_000 + 500_000;
        assert!((allowed - 70_000..=allowed + 70_000).contains(&passed), "{passed}");
    }

    #[test]
    fn frames_are_limited_however_small() {
        let start = Instant::now();
        let mut bucket = Bucket::of_frames(1000, start);
        let (mut now, mut passed) = (start, 0);
        while now - start < Duration::from_secs(1) {
            passed += 1;
            now += bucket.take(1, now).unwrap_or_default();
        }
        assert!((1045..=1055).contains(&passed), "{passed}");
    }

    #[test]
    fn bucket_without_rate_never_waits() {
        let now = Instant::now();
        let mut bucket = Bucket::new(None, now);
        assert!((0..1000).all(|_| bucket.take(69_632, now).is_none()));
        bucket.set_rate(Some(1));
        assert!((0..4).any(|_| bucket.take(69_632, now).is_some()));
    }
}
