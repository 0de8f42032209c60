//! Reasons why a git operation, or one built on it, failed.

use agentiso_core::names::WorkspaceName;
use agentiso_git::Trouble;
use agentiso_git::merge::MergeError;
use thiserror::Error;

use super::OpError;

#[derive(Debug, Error)]
pub enum GitError {
    #[error("{what} in workspace {name} failed: {words}{}", because(.refused))]
    Failed {
        name: WorkspaceName,
        what: &'static str,
        trouble: Trouble,
        /// Output of git, without credentials.
        words: String,
        /// The flow that the workspace's network policy refused meanwhile.
        refused: Option<String>,
    },
    #[error(
        "{what} in workspace {name} timed out after {seconds} s; it was killed with all processes it had started"
    )]
    TimedOut { name: WorkspaceName, what: &'static str, seconds: u64 },
    #[error("{what} in workspace {name} gave unexpected output: {words}")]
    Answer { name: WorkspaceName, what: &'static str, words: String },
    #[error("cannot merge into workspace {name}: {words}")]
    Target { name: WorkspaceName, code: String, words: String },
    #[error("another call is already merging into workspace {name}")]
    MergeUnderWay { name: WorkspaceName },
    #[error("workspace {name} is named more than once; each source is merged once, and never into itself")]
    NamedTwice { name: WorkspaceName },
}

fn because(refused: &Option<String>) -> String {
    refused.as_ref().map(|refused| format!("\nThe network policy refused it: {refused}")).unwrap_or_default()
}

impl GitError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Failed { refused: Some(_), .. } => "network_refused",
            Self::Failed { trouble, .. } => trouble.code(),
            Self::TimedOut { .. } => "timed_out",
            Self::Answer { .. } => "git_failed",
            Self::Target { code, .. } => match code.as_str() {
                "no_commit" => "no_commit",
                "no_branch" => "git_no_branch",
                "uncommitted" => "uncommitted_changes",
                "unfinished" => "unfinished_operation",
                _ => "merge_failed",
            },
            Self::MergeUnderWay { .. } => "busy",
            Self::NamedTwice { .. } => "named_twice",
        }
    }

    pub(crate) fn retryable(&self) -> bool {
        match self {
            Self::Failed { trouble, refused, .. } => refused.is_none() && trouble.is_passing(),
            Self::TimedOut { .. } | Self::MergeUnderWay { .. } => true,
            Self::Answer { .. } | Self::Target { .. } | Self::NamedTwice { .. } => false,
        }
    }

    /// The error for a merge that could not begin.
    pub(crate) fn of_target(name: &WorkspaceName, error: MergeError<OpError>) -> OpError {
        let name = name.clone();
        match error {
            MergeError::Guest(error) => error,
            MergeError::Stopped => OpError::Cancelled,
            MergeError::Refused { code, words } => Self::Target { name, code, words }.into(),
            MergeError::Git { trouble, words } => {
                Self::Failed { name, what: "git", trouble, words, refused: None }.into()
            }
            MergeError::Answer(what) => Self::Answer { name, what: "git", words: what.to_owned() }.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_failure_names_the_network_refusal() {
        let failed = |refused: Option<&str>| GitError::Failed {
            name: WorkspaceName::parse("web").unwrap(),
            what: "git clone",
            trouble: Trouble::Unreachable,
            words: "fatal: Could not resolve host: x".to_owned(),
            refused: refused.map(str::to_owned),
        };
        let error = failed(Some("x is not allowed"));
        assert!(error.to_string().contains("x is not allowed"), "{error}");
        assert_eq!(error.code(), "network_refused");
        assert!(!error.retryable());
        assert_eq!(failed(None).code(), "git_unreachable");
    }
}
