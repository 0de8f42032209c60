//! Reasons why an operation on a team failed.

use agentiso_core::team::{MailError, RoleName, TeamName, TeamRefusal};
use thiserror::Error;

use super::OpError;
use crate::mail::{DeliverError, MailStoreError};

#[derive(Debug, Error)]
pub enum TeamError {
    #[error(transparent)]
    Refused(#[from] TeamRefusal),
    #[error(transparent)]
    Mail(#[from] MailError),
    #[error("team {name} belongs to another session (active {idle_secs} s ago)")]
    OwnerActive { name: TeamName, idle_secs: u64 },
    #[error("team {name} belongs to another session, which is connected (active {idle_secs} s ago)")]
    OwnerConnected { name: TeamName, idle_secs: u64 },
    #[error("team {team} was not created, because its member {role} could not be: {source}")]
    Member {
        team: TeamName,
        role: RoleName,
        #[source]
        source: Box<OpError>,
    },
    #[error("team {team} could not be destroyed: {left} of its workspaces are left")]
    Left { team: TeamName, left: usize },
    #[error("cannot store the team's messages: {0}")]
    Store(#[from] MailStoreError),
}

impl From<DeliverError> for TeamError {
    fn from(error: DeliverError) -> Self {
        match error {
            DeliverError::Refused(refusal) => Self::Mail(refusal),
            DeliverError::Store(error) => Self::Store(error),
        }
    }
}

impl TeamError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Refused(TeamRefusal::NotFound { .. }) => "team_not_found",
            Self::Refused(TeamRefusal::NameTaken(_)) => "team_exists",
            Self::Refused(
                TeamRefusal::NoRoles | TeamRefusal::DuplicateRole(_) | TeamRefusal::TooLong { .. },
            ) => "bad_roles",
            Self::Refused(TeamRefusal::TooMany { .. }) => "team_budget",
            Self::Refused(TeamRefusal::TooDeep { .. }) => "team_too_deep",
            Self::Refused(TeamRefusal::Going(_)) => "team_going",
            Self::Refused(TeamRefusal::BeingMade(_)) => "team_being_made",
            Self::Mail(MailError::NotAMember { .. }) => "not_a_member",
            Self::Mail(MailError::TooLong(_)) => "message_too_long",
            Self::Mail(MailError::TooManyTasks { .. }) => "too_many_tasks",
            Self::OwnerActive { .. } => "owner_active",
            Self::OwnerConnected { .. } => "owner_connected",
            Self::Member { source, .. } => source.code(),
            Self::Left { .. } => "destroy_failed",
            Self::Store(MailStoreError::NoSpace { .. }) => "no_space",
            Self::Store(MailStoreError::Closed) => "team_going",
            Self::Store(MailStoreError::TooLong) => "message_too_long",
            Self::Store(MailStoreError::Io { .. } | MailStoreError::Full { .. }) => "mail_not_stored",
        }
    }

    pub(crate) fn retryable(&self) -> bool {
        match self {
            Self::OwnerActive { .. }
            | Self::Left { .. }
            | Self::Store(
                MailStoreError::NoSpace { .. } | MailStoreError::Io { .. } | MailStoreError::Full { .. },
            )
            | Self::Refused(TeamRefusal::BeingMade(_))
            | Self::Mail(MailError::TooManyTasks { .. }) => true,
            Self::Member { source, .. } => source.retryable(),
            Self::OwnerConnected { .. }
            | Self::Refused(
                TeamRefusal::NotFound { .. }
                | TeamRefusal::NameTaken(_)
                | TeamRefusal::NoRoles
                | TeamRefusal::DuplicateRole(_)
                | TeamRefusal::TooLong { .. }
                | TeamRefusal::TooMany { .. }
                | TeamRefusal::TooDeep { .. }
                | TeamRefusal::Going(_),
            )
            | Self::Mail(MailError::NotAMember { .. } | MailError::TooLong(_))
            | Self::Store(MailStoreError::Closed | MailStoreError::TooLong) => false,
        }
    }
}
