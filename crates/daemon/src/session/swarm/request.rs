//! The request for a swarm, and the checks that refuse a bad one before anything begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use agentiso_core::names::{NamePrefix, SnapshotName, TaskName, WorkspaceRef};
use agentiso_core::paths::GuestPath;
use agentiso_git::merge::Strategy;

use super::knowledge::VaultQuery;
use crate::error::{MAX_QUERIES, MAX_QUERY, MAX_TASKS, SwarmError};

#[derive(Clone)]
pub struct SwarmTask {
    pub name: TaskName,
    /// Run by `/bin/sh -c`.
    pub command: String,
    /// `None`: `/workspace`.
    pub workdir: Option<GuestPath>,
    /// Overrides the environment of the swarm.
    pub env: BTreeMap<String, String>,
    /// Asked in addition to those of the swarm.
    pub vault_queries: Vec<VaultQuery>,
}

/// Omits the values of variables, which may be secrets.
impl fmt::Debug for SwarmTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmTask")
            .field("name", &self.name)
            .field("command", &self.command)
            .field("workdir", &self.workdir)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct SwarmMerge {
    pub strategy: Strategy,
    /// `None`: the golden workspace.
    pub target: Option<WorkspaceRef>,
}

#[derive(Clone)]
pub struct SwarmRequest {
    pub golden: WorkspaceRef,
    pub snapshot: SnapshotName,
    /// Prefix of the workers' names. `None`: the id of the swarm, which is unique.
    pub name_prefix: Option<NamePrefix>,
    pub tasks: Vec<SwarmTask>,
    pub env: BTreeMap<String, String>,
    pub merge: Option<SwarmMerge>,
    /// Number of forks and commands at once.
    pub max_parallel: usize,
    /// Timeout of each command.
    pub timeout: Duration,
    /// Whether the workers are destroyed at the end. A cancelled swarm always destroys them.
    pub cleanup: bool,
    /// `None`: as in the golden workspace.
    pub allow_internet: Option<bool>,
    /// A text for every worker, at `/tmp/.shared-context`.
    pub shared_context: Option<String>,
    /// Queries for all workers. The answers are one text at `/tmp/.vault-context`.
    pub vault_queries: Vec<VaultQuery>,
    /// Whether every worker gets access to MCP from inside, for its own workspace only.
    pub mcp_bridge: bool,
}

/// Omits the values of variables, which may be secrets.
impl fmt::Debug for SwarmRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwarmRequest")
            .field("golden", &self.golden)
            .field("snapshot", &self.snapshot)
            .field("tasks", &self.tasks)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

impl SwarmRequest {
    pub(super) fn check(&self) -> Result<(), SwarmError> {
        if !(1..=MAX_TASKS).contains(&self.tasks.len()) {
            return Err(SwarmError::TaskCount(self.tasks.len()));
        }
        if !(1..=MAX_TASKS).contains(&self.max_parallel) {
            return Err(SwarmError::Parallel(self.max_parallel));
        }
        check_queries(&self.vault_queries)?;
        self.tasks.iter().try_for_each(|task| check_queries(&task.vault_queries))?;
        let mut names = BTreeSet::new();
        match self.tasks.iter().find(|task| !names.insert(&task.name)) {
            Some(twice) => Err(SwarmError::SameName(twice.name.clone())),
            None => Ok(()),
        }
    }
}

fn check_queries(queries: &[VaultQuery]) -> Result<(), SwarmError> {
    if queries.len() > MAX_QUERIES {
        return Err(SwarmError::QueryCount(queries.len()));
    }
    let mut lengths = queries.iter().map(|query| query.query.len());
    match lengths.find(|length| !(1..=MAX_QUERY).contains(length)) {
        Some(length) => Err(SwarmError::QueryLength(length)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::swarm::VaultQueryKind;

    #[test]
    fn vault_queries_are_limited_in_number_and_length() {
        let queries = |count: usize, length: usize| {
            let query = VaultQuery { kind: VaultQueryKind::Search, query: "x".repeat(length) };
            check_queries(&vec![query; count])
        };
        assert!(queries(0, 0).is_ok() && queries(MAX_QUERIES, MAX_QUERY).is_ok());
        assert!(matches!(queries(MAX_QUERIES + 1, 1), Err(SwarmError::QueryCount(21))));
        assert!(matches!(queries(1, MAX_QUERY + 1), Err(SwarmError::QueryLength(1025))));
        assert!(matches!(queries(1, 0), Err(SwarmError::QueryLength(0))));
    }
}
