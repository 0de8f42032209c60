//! A summary of workspaces, teams and the warm pool, for clients that watch the daemon.

use serde::{Deserialize, Serialize};

use super::wire::Workspace;
use crate::session::Session;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// Oldest first.
    pub workspaces: Vec<Workspace>,
    pub teams: Vec<TeamLine>,
    /// Number of VMs that are ready in the warm pool.
    pub pool_ready: usize,
    /// Uptime of the daemon.
    pub uptime_seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamLine {
    pub name: String,
    pub state: String,
    pub members: Vec<String>,
}

pub(super) fn overview(session: &Session) -> Overview {
    let teams = session.teams().into_iter().map(|team| TeamLine {
        name: team.name.to_string(),
        state: team.state.as_str().to_owned(),
        members: team.members.iter().map(|member| member.name.to_string()).collect(),
    });
    Overview {
        workspaces: session.list(None).into_iter().map(Workspace::from).collect(),
        teams: teams.collect(),
        pool_ready: session.shared().pool.count(),
        uptime_seconds: session.health().uptime_seconds,
    }
}
