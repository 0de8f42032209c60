//! Rate limits of costly calls: one bucket of calls per category, for the whole daemon.
//!
//! A bucket is stored as the time until it is full again, as of an instant. A call adds the time that its share takes
//! to refill, and is refused if the bucket does not hold enough calls. So no timer has to run. Buckets are not saved: a
//! restart refills them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::RateLimitConfig;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateCategory {
    /// Calls that make workspaces: one per call, however many workspaces it makes.
    Create,
    /// Calls that run commands: one per workspace.
    Exec,
    /// Messages between members of a team.
    TeamMessage,
}

impl RateCategory {
    /// The number of calls that a full bucket holds. It is enough for a day of integration tests, which creates
    /// fourteen workspaces within 75 seconds, besides teams and swarms, and runs a hundred commands in a row.
    const fn burst(self) -> u32 {
        match self {
            Self::Create => 20,
            Self::Exec => 100,
            Self::TeamMessage => 50,
        }
    }

    fn per_minute(self, config: &RateLimitConfig) -> u32 {
        match self {
            Self::Create => config.create_per_minute,
            Self::Exec => config.exec_per_minute,
            Self::TeamMessage => config.team_message_per_minute,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Exec => "exec",
            Self::TeamMessage => "team_message",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the rate limit of {} calls is reached: {per_minute} per minute, {} at once; try again in {wait_secs} s",
    .category.name(), .category.burst()
)]
pub struct RateLimited {
    pub category: RateCategory,
    pub per_minute: u32,
    /// Seconds until the same call is admitted, if no other call is made meanwhile.
    pub wait_secs: u64,
}

/// The level of each bucket. A bucket without an entry is full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLevels(BTreeMap<RateCategory, Level>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    missing: SignedDuration,
    as_of: Timestamp,
}

impl Level {
    /// The level at `now`. If the clock was set back, no time has passed, and the bucket refills from `now` on.
    fn at(self, now: Timestamp) -> Self {
        let passed = now.duration_since(self.as_of).max(SignedDuration::ZERO);
        Self { missing: (self.missing - passed).max(SignedDuration::ZERO), as_of: now }
    }
}

impl RateLevels {
    /// Takes `calls` out of a bucket, all or none. More calls than a bucket holds are admitted when it is full, because
    /// they could never be made otherwise. Later calls wait until they are refilled.
    pub fn charge(
        &mut self,
        category: RateCategory,
        calls: u32,
        config: &RateLimitConfig,
        now: Timestamp,
    ) -> Result<(), RateLimited> {
        if !config.enabled || calls == 0 {
            return Ok(());
        }
        let per_minute = category.per_minute(config).max(1);
        let burst = category.burst();
        let refill = |calls: u32| {
            SignedDuration::from_nanos(60_000_000_000 * i64::from(calls) / i64::from(per_minute))
        };
        let full = Level { missing: SignedDuration::ZERO, as_of: now };
        let level = self.0.entry(category).or_insert(full);
        // Updated even if the call is refused: otherwise, after the clock was set back, nothing would refill until it
        // has reached its former time.
        *level = level.at(now);
        let short = level.missing + refill(calls.min(burst)) - refill(burst);
        if short > SignedDuration::ZERO {
            let wait_secs = u64::try_from(short.as_nanos()).unwrap_or(0).div_ceil(1_000_000_000);
            return Err(RateLimited { category, per_minute, wait_secs });
        }
        level.missing += refill(calls);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn after(seconds: i64) -> Timestamp {
        start().checked_add(SignedDuration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn creates_burst_to_20_then_refill() {
        let (config, mut levels) = (RateLimitConfig::default(), RateLevels::default());
        let mut create = |second| levels.charge(RateCategory::Create, 1, &config, after(second));
        for _ in 0..20 {
            assert_eq!(create(0), Ok(()));
        }
        let refused = create(0).unwrap_err();
        assert_eq!((refused.per_minute, refused.wait_secs), (5, 12));
        let text = refused.to_string();
        assert!(text.contains("rate limit") && text.contains("5 per minute"), "{text}");
        assert!(create(11).is_err(), "a refused call takes nothing and gives nothing");
        assert_eq!(create(12), Ok(()));
        assert!(create(13).is_err());
    }

    #[test]
    fn default_rate_limits_pass_an_integration_day() {
        let (config, mut levels) = (RateLimitConfig::default(), RateLevels::default());
        let mut call = |category, second| levels.charge(category, 1, &config, after(second));
        // Fourteen creates within 75 seconds, two teams and two swarms between them, a hundred commands at the end.
        for number in 0..14 {
            assert_eq!(call(RateCategory::Create, number * 75 / 14), Ok(()), "create {number}");
        }
        for second in [20, 40, 60, 75] {
            assert_eq!(call(RateCategory::Create, second), Ok(()), "a team or a swarm at {second} s");
        }
        for number in 0..100 {
            assert_eq!(call(RateCategory::Exec, 75), Ok(()), "command {number}");
        }
    }

    #[test]
    fn empty_buckets_refill_by_the_time_that_passed() {
        let (config, mut levels) = (RateLimitConfig::default(), RateLevels::default());
        while levels.charge(RateCategory::Create, 1, &config, start()).is_ok() {}
        assert!(levels.charge(RateCategory::Create, 1, &config, after(1)).is_err(), "not full again at once");
        let passed =
            (0..100).take_while(|_| levels.charge(RateCategory::Create, 1, &config, after(60)).is_ok());
        assert_eq!(passed.count(), 5, "a minute gives what the configuration says");
    }

    #[test]
    fn oversized_call_passes_and_delays_later_ones() {
        let (config, mut levels) = (RateLimitConfig::default(), RateLevels::default());
        let mut exec = |calls, second| levels.charge(RateCategory::Exec, calls, &config, after(second));
        assert_eq!(exec(110, 0), Ok(()));
        assert_eq!(exec(1, 0).unwrap_err().wait_secs, 11);
        assert!(exec(1, 10).is_err());
        assert_eq!(exec(1, 11), Ok(()));
        assert!(exec(20, 12).is_err());
        assert_eq!(exec(20, 60), Ok(()));
    }

    #[test]
    fn rate_categories_are_independent_and_optional() {
        let (config, mut levels) = (RateLimitConfig::default(), RateLevels::default());
        while levels.charge(RateCategory::Create, 1, &config, start()).is_ok() {}
        assert_eq!(levels.charge(RateCategory::Exec, 1, &config, start()), Ok(()));
        let off = RateLimitConfig { enabled: false, ..config };
        assert!((0..1000).all(|_| levels.charge(RateCategory::Create, 1, &off, start()).is_ok()));
    }

    #[test]
    fn clock_set_back_prolongs_no_wait() {
        let (config, mut levels) = (RateLimitConfig::default(), RateLevels::default());
        let mut create = |second| levels.charge(RateCategory::Create, 1, &config, after(second));
        assert_eq!(create(1_000_000), Ok(()));
        for _ in 0..19 {
            assert_eq!(create(0), Ok(()), "one earlier create is one of twenty");
        }
        assert_eq!(create(0).unwrap_err().wait_secs, 12);
        // Set back once more, while calls are refused.
        assert_eq!(create(-1_000_000).unwrap_err().wait_secs, 12);
        assert_eq!(create(-1_000_000 + 12), Ok(()));
    }

    proptest! {
        /// Whatever the calls and their times, no more are admitted than one burst and the refill.
        #[test]
        fn rate_limit_is_never_exceeded(
            gaps in prop::collection::vec((0_i64..30_000, 1_u32..21), 1..200),
            per_minute in 1_u32..2000,
        ) {
            let config = RateLimitConfig { exec_per_minute: per_minute, ..RateLimitConfig::default() };
            let (mut levels, mut now, mut passed) = (RateLevels::default(), start(), 0_u32);
            for (gap, calls) in gaps {
                now = now.checked_add(SignedDuration::from_millis(gap)).unwrap();
                if levels.charge(RateCategory::Exec, calls, &config, now).is_ok() {
                    passed += calls;
                }
            }
            let minutes = now.duration_since(start()).as_secs_f64() / 60.0;
            prop_assert!(f64::from(passed) <= 100.0 + minutes * f64::from(per_minute) + 0.001);
        }

        /// A refused call is admitted after the wait that the refusal names.
        #[test]
        fn call_passes_after_the_named_wait(calls in prop::collection::vec(1_u32..21, 1..40), per_minute in 1_u32..2000) {
            let config = RateLimitConfig { exec_per_minute: per_minute, ..RateLimitConfig::default() };
            let (mut levels, mut now) = (RateLevels::default(), start());
            for calls in calls {
                if let Err(refused) = levels.charge(RateCategory::Exec, calls, &config, now) {
                    now = now.checked_add(SignedDuration::from_secs(refused.wait_secs as i64)).unwrap();
                    prop_assert_eq!(levels.charge(RateCategory::Exec, calls, &config, now), Ok(()));
                }
            }
        }
    }
}
