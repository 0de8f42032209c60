//! The counters of the daemon. They count for as long as it runs, whether or not anything reads them.
//!
//! Labels take few values, all defined here: a client cannot create series by inventing words. The one exception,
//! the names of teams, is removed with the team.

mod show;

use std::time::{Duration, Instant};

use agentiso_core::team::{TASK_ASSIGNMENT, TeamName};
use agentiso_git::merge::Strategy;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

pub use show::{Health, Workspaces};

type Labels<const N: usize> = [(&'static str, String); N];

/// In seconds. A restore takes a fraction of one, a boot under emulation tens of them.
const BOOT_BUCKETS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// In seconds, from `true` to builds.
const WORK_BUCKETS: [f64; 10] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0];

/// The types of messages that are distinguished; senders may write anything.
const MESSAGE_TYPES: [&str; 3] = ["text", TASK_ASSIGNMENT, "other"];

/// The results of a command.
const EXEC_RESULTS: [&str; 4] = ["success", "failure", "timeout", "error"];

/// The result of a merge between workspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeResult {
    /// Every source was merged.
    Whole,
    /// Some sources were left out.
    Partial,
    /// Nothing was merged.
    Failed,
}

impl MergeResult {
    const ALL: [Self; 3] = [Self::Whole, Self::Partial, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "success",
            Self::Partial => "conflict",
            Self::Failed => "error",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Metrics {
    begun: Instant,
    boots: Histogram,
    execs: Family<Labels<1>, Counter>,
    exec_time: Histogram,
    errors: Family<Labels<1>, Counter>,
    team_messages: Family<Labels<2>, Counter>,
    merges: Family<Labels<2>, Counter>,
    merge_time: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            begun: Instant::now(),
            boots: Histogram::new(BOOT_BUCKETS),
            execs: Family::default(),
            exec_time: Histogram::new(WORK_BUCKETS),
            errors: Family::default(),
            team_messages: Family::default(),
            merges: Family::default(),
            merge_time: Histogram::new(WORK_BUCKETS),
        };
        // A series that appears only with its first event hides that event from a monitor that looks at rates.
        for result in EXEC_RESULTS {
            drop(metrics.execs.get_or_create(&exec_labels(result)));
        }
        for (strategy, result) in Strategy::ALL.into_iter().flat_map(|s| MergeResult::ALL.map(|r| (s, r))) {
            drop(metrics.merges.get_or_create(&merge_labels(strategy, result.as_str())));
        }
        metrics
    }
}

impl Metrics {
    /// Counts a VM that came up: it was created, started, restored or forked.
    pub(crate) fn booted(&self, took: Duration) {
        self.boots.observe(took.as_secs_f64());
    }

    /// Counts a command that was awaited to its end. The time is the time waited, not the time the guest reports: a
    /// guest may report anything.
    pub(crate) fn executed(&self, timed_out: bool, exit_code: Option<i32>, took: Duration) {
        let result = match (timed_out, exit_code) {
            (true, _) => "timeout",
            (false, Some(0)) => "success",
            (false, Some(_) | None) => "failure",
        };
        self.execs.get_or_create(&exec_labels(result)).inc();
        self.exec_time.observe(took.as_secs_f64());
    }

    /// Counts a command whose result is unknown because its guest or its VM failed.
    pub(crate) fn exec_failed(&self) {
        self.execs.get_or_create(&exec_labels("error")).inc();
    }

    /// Counts a call that was answered with this error code.
    pub(crate) fn failed(&self, code: &str) {
        self.errors.get_or_create(&[("error_type", code.to_owned())]).inc();
    }

    pub(crate) fn sent(&self, team: &TeamName, message_type: &str) {
        let known = MESSAGE_TYPES.into_iter().find(|known| *known == message_type).unwrap_or("other");
        self.team_messages.get_or_create(&message_labels(team, known)).inc();
    }

    pub(crate) fn forget_team(&self, team: &TeamName) {
        for message_type in MESSAGE_TYPES {
            self.team_messages.remove(&message_labels(team, message_type));
        }
    }

    pub(crate) fn merged(&self, strategy: Strategy, took: Duration, result: MergeResult) {
        self.merges.get_or_create(&merge_labels(strategy, result.as_str())).inc();
        self.merge_time.observe(took.as_secs_f64());
    }
}

fn exec_labels(result: &str) -> Labels<1> {
    [("result", result.to_owned())]
}

fn merge_labels(strategy: Strategy, result: &str) -> Labels<2> {
    [("strategy", strategy.as_str().to_owned()), ("result", result.to_owned())]
}

fn message_labels(team: &TeamName, message_type: &str) -> Labels<2> {
    [("team", team.to_string()), ("message_type", message_type.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_types_cannot_create_metric_series() {
        let metrics = Metrics::default();
        let team = TeamName::parse("alpha").unwrap();
        for number in 0..100 {
            metrics.sent(&team, &format!("type-{number}"));
        }
        assert_eq!(metrics.team_messages.get(&message_labels(&team, "other")).unwrap().get(), 100);
        assert!(metrics.team_messages.get(&message_labels(&team, "type-1")).is_none());
        metrics.forget_team(&team);
        assert!(metrics.team_messages.get(&message_labels(&team, "other")).is_none());
    }
}
