//! Renders the counters, and the numbers that the registry knows, as OpenMetrics text.

use std::fmt;

use agentiso_core::lifecycle::PublicState;
use agentiso_core::team::TeamState;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry as Families;
use serde::{Deserialize, Serialize};

use super::{Labels, Metrics};
use crate::registry::Registry;

/// The number of workspaces in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspaces {
    pub running: u64,
    pub stopped: u64,
    pub suspended: u64,
}

impl Workspaces {
    fn of(registry: &Registry) -> Self {
        let mut counted = Self::default();
        for workspace in registry.iter() {
            match workspace.status.phase().public() {
                PublicState::Running => counted.running += 1,
                PublicState::Stopped => counted.stopped += 1,
                PublicState::Suspended => counted.suspended += 1,
            }
        }
        counted
    }
}

/// The answer to a health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Always `ok`: a daemon with a problem does not answer.
    pub status: String,
    pub workspaces: Workspaces,
    pub uptime_seconds: u64,
}

impl Metrics {
    pub(crate) fn health(&self, registry: &Registry) -> Health {
        Health {
            status: "ok".to_owned(),
            workspaces: Workspaces::of(registry),
            uptime_seconds: self.begun.elapsed().as_secs(),
        }
    }

    /// Returns all metrics.
    pub(crate) fn text(&self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut families = Families::with_prefix("agentiso");
        families.register("workspaces_total", "Workspaces that exist", workspaces(registry));
        let help = "Seconds until a VM that was created, started, restored or forked answered";
        families.register("vm_boot_duration_seconds", help, self.boots.clone());
        families.register("exec", "Commands that ended, in all workspaces", self.execs.clone());
        families.register("exec_duration_seconds", "Seconds that commands took", self.exec_time.clone());
        families.register(
            "errors",
            "Calls that were answered with an error",
            AlwaysListed(self.errors.clone()),
        );
        families.register("teams_total", "Teams that exist", teams(registry));
        let help = "Messages between members of teams that exist";
        families.register("team_messages", help, AlwaysListed(self.team_messages.clone()));
        families.register("merge", "Merges between workspaces", self.merges.clone());
        families.register("merge_duration_seconds", "Seconds that merges took", self.merge_time.clone());
        let mut exposition = String::new();
        text::encode(&mut exposition, &families)?;
        Ok(exposition)
    }
}

fn workspaces(registry: &Registry) -> Family<Labels<1>, Gauge> {
    let Workspaces { running, stopped, suspended } = Workspaces::of(registry);
    gauges([("running", running), ("stopped", stopped), ("suspended", suspended)])
}

fn teams(registry: &Registry) -> Family<Labels<1>, Gauge> {
    let states = [
        TeamState::Creating,
        TeamState::Ready,
        TeamState::Working,
        TeamState::Completing,
        TeamState::Destroyed,
    ];
    gauges(states.map(|state| {
        let count = registry.teams.iter().filter(|(_, team)| team.shown_state() == state).count();
        (state.as_str(), count as u64)
    }))
}

fn gauges<const N: usize>(values: [(&'static str, u64); N]) -> Family<Labels<1>, Gauge> {
    let family = Family::<Labels<1>, Gauge>::default();
    for (state, value) in values {
        family.get_or_create(&[("state", state.to_owned())]).set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    family
}

/// A family that is listed even without a series, so that a reader learns that it exists.
#[derive(Debug)]
struct AlwaysListed<M>(M);

impl<M: EncodeMetric> EncodeMetric for AlwaysListed<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}
