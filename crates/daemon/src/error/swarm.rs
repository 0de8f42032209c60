//! Limits of a swarm, and the reasons why one could not run.

use agentiso_core::names::TaskName;
use thiserror::Error;

/// Number of tasks of one swarm, and of workers at once, from the tool contract.
pub(crate) const MAX_TASKS: usize = 20;

/// Number of vault queries for all workers, and for one of them, and bytes of each, from the tool contract.
pub(crate) const MAX_QUERIES: usize = 20;
pub(crate) const MAX_QUERY: usize = 1024;

#[derive(Debug, Error)]
pub enum SwarmError {
    #[error("a swarm has 1 to {MAX_TASKS} tasks; {0} were given")]
    TaskCount(usize),
    #[error("max_parallel is {0}; it must be 1 to {MAX_TASKS}")]
    Parallel(usize),
    #[error("two tasks are called {0}")]
    SameName(TaskName),
    #[error("{0} vault queries were given; at most {MAX_QUERIES} are allowed")]
    QueryCount(usize),
    #[error("a vault query has {0} bytes; it must have 1 to {MAX_QUERY}")]
    QueryLength(usize),
    #[error("no worker could be forked: {0}")]
    NoWorker(String),
}

impl SwarmError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::TaskCount(_)
            | Self::Parallel(_)
            | Self::SameName(_)
            | Self::QueryCount(_)
            | Self::QueryLength(_) => "invalid_arguments",
            Self::NoWorker(_) => "fork_failed",
        }
    }
}
