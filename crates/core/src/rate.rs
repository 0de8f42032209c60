//! How often costly calls may be made: a bucket of calls per category, for the whole server.
//!
//! A bucket is a time: how long it takes to be full again, as of an instant. A call adds the time that it takes to refill
//! what it took, and is refused if the bucket would have to be emptier than empty. So nothing has to tick. Buckets are not
//! stored: a restart refills them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::RateLimitConfig;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateCategory {
    /// Making machines: one per call, however many it makes.
    Create,
    /// Running commands: one per workspace.
    Exec,
    /// What members of teams send to each other.
    TeamMessage,
}

impl RateCategory {
    /// How many calls a full bucket holds: what a day of integration tests needs, which makes fourteen machines within 75
    /// seconds, besides teams and swarms, and runs a hundred commands in a row.
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
    /// When the same call will be let through, if nobody else calls.
    pub wait_secs: u64,
}

/// What each bucket lacks. One that is not there is full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLevels(BTreeMap<RateCategory, Level>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    missing: SignedDuration,
    as_of: Timestamp,
}

impl Level {
    /// A clock that was set back has gone on by nothing: the bucket fills from now on, by the clock as it is now.
    fn at(self, now: Timestamp) -> Self {
        let passed = now.duration_since(self.as_of).max(SignedDuration::ZERO);
        Self { missing: (self.missing - passed).max(SignedDuration::ZERO), as_of: now }
    }
}

impl RateLevels {
    /// Takes `calls` out of a bucket, all or none. More than a bucket holds are let through when it is full, and are
    /// waited for by those that come after: else a call for twenty machines could never be made.
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
        // Also if the call is refused: else a clock that was set back would fill nothing until it is where it was.
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
    fn an_integration_day_passes_with_the_defaults() {
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
    fn a_call_for_more_than_a_bucket_holds_is_let_through_once_and_paid_for_later() {
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
    fn categories_are_apart_and_none_counts_when_switched_off() {
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
        /// Whatever is asked for and when, no more passes than a burst and what refills.
        #[test]
        fn no_more_passes_than_is_allowed(
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

        /// After the wait that a refusal names, the call passes.
        #[test]
        fn a_refusal_tells_the_truth(calls in prop::collection::vec(1_u32..21, 1..40), per_minute in 1_u32..2000) {
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
