//! What the daemon counts. It counts for as long as it lives, whoever shows it and whoever does not.
//!
//! Labels take few values, and all of them are ours: a client cannot make series by inventing words. The one exception,
//! names of teams, goes with the team.

mod show;

use std::time::{Duration, Instant};

use agentiso_core::team::{TASK_ASSIGNMENT, TeamName};
use agentiso_git::merge::{Outcome, Strategy};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::error::OpError;
use crate::session::Merged;

pub use show::{Health, Workspaces};

type Labels<const N: usize> = [(&'static str, String); N];

/// Seconds. A restore takes a fraction of one, a boot under emulation tens of them.
const BOOT_BUCKETS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Seconds. From `true` to builds.
const WORK_BUCKETS: [f64; 10] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0];

/// Types of messages that are told apart; senders may write anything.
const MESSAGE_TYPES: [&str; 3] = ["text", TASK_ASSIGNMENT, "other"];

/// How a command ended.
const EXEC_RESULTS: [&str; 4] = ["success", "failure", "timeout", "error"];

/// How a merge ended: with everything, with some sources left out, or not at all.
const MERGE_RESULTS: [&str; 3] = ["success", "conflict", "error"];

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
        // A series that appears only with its first event hides that event from whoever looks at rates.
        for result in EXEC_RESULTS {
            drop(metrics.execs.get_or_create(&exec_labels(result)));
        }
        for (strategy, result) in Strategy::ALL.into_iter().flat_map(|s| MERGE_RESULTS.map(|r| (s, r))) {
            drop(metrics.merges.get_or_create(&merge_labels(strategy, result)));
        }
        metrics
    }
}

impl Metrics {
    /// A machine came up: was made, started, restored or forked.
    pub(crate) fn booted(&self, took: Duration) {
        self.boots.observe(took.as_secs_f64());
    }

    /// A command that somebody waited for came to its end. It took as long as we waited, and not as long as the guest says:
    /// what is in there could say anything.
    pub(crate) fn executed(&self, timed_out: bool, exit_code: Option<i32>, took: Duration) {
        let result = match (timed_out, exit_code) {
            (true, _) => "timeout",
            (false, Some(0)) => "success",
            (false, Some(_) | None) => "failure",
        };
        self.execs.get_or_create(&exec_labels(result)).inc();
        self.exec_time.observe(took.as_secs_f64());
    }

    /// What became of a command is not known: its guest or its machine failed.
    pub(crate) fn exec_failed(&self) {
        self.execs.get_or_create(&exec_labels("error")).inc();
    }

    /// A call was answered with this code of ours.
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

    pub(crate) fn merged(&self, strategy: Strategy, took: Duration, result: &Result<Merged, OpError>) {
        let whole = |merged: &Merged| {
            merged.sources.iter().all(|source| matches!(source.outcome, Outcome::Merged { .. }))
        };
        let result = match result {
            Ok(merged) if whole(merged) => "success",
            Ok(_) => "conflict",
            Err(_) => "error",
        };
        self.merges.get_or_create(&merge_labels(strategy, result)).inc();
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
    use agentiso_core::ids::WorkspaceId;
    use agentiso_core::names::WorkspaceName;

    use crate::session::MergedSource;

    fn merges(metrics: &Metrics, strategy: Strategy, result: &str) -> u64 {
        metrics.merges.get(&merge_labels(strategy, result)).map_or(0, |counter| counter.get())
    }

    #[test]
    fn a_merge_is_a_success_only_if_every_source_went_in() {
        let metrics = Metrics::default();
        let strategy = Strategy::CherryPick;
        let source = |outcome| MergedSource {
            id: WorkspaceId::random(),
            name: WorkspaceName::parse("a").unwrap(),
            outcome,
        };
        let merged = || source(Outcome::Merged { commits: 1, note: None });
        let failed = source(Outcome::Failed { error: "does not fit".to_owned() });
        let took = Duration::from_secs(2);
        metrics.merged(strategy, took, &Ok(Merged { strategy, sources: vec![merged(), merged()] }));
        metrics.merged(strategy, took, &Ok(Merged { strategy, sources: vec![merged(), failed] }));
        metrics.merged(strategy, took, &Err(OpError::Cancelled));
        for result in MERGE_RESULTS {
            assert_eq!(merges(&metrics, strategy, result), 1, "{result}");
            assert_eq!(merges(&metrics, Strategy::Sequential, result), 0, "{result}");
        }
    }

    #[test]
    fn a_sender_cannot_make_series() {
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
