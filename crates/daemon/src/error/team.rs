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

    pub(crate) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Refused(TeamRefusal::NotFound { known, .. }) if known.is_empty() => {
                "there are no teams; create one with team (action create)".to_owned()
            }
            Self::Refused(TeamRefusal::NotFound { known, .. }) => format!("there are: {}", known.join(", ")),
            Self::Refused(TeamRefusal::NameTaken(_)) => {
                "choose another name, or destroy that team first with team (action destroy)".to_owned()
            }
            Self::Refused(TeamRefusal::NoRoles | TeamRefusal::DuplicateRole(_)) => {
                "give each member a name of its own".to_owned()
            }
            Self::Refused(TeamRefusal::TooLong { .. }) => {
                "put the rest into a note, and name the note in the description".to_owned()
            }
            Self::Refused(TeamRefusal::TooMany { .. }) => {
                "ask for fewer roles, or for a larger max_vms of the topmost team".to_owned()
            }
            Self::Refused(TeamRefusal::TooDeep { .. }) => "create it below a team that is closer to the topmost".to_owned(),
            Self::Refused(TeamRefusal::Going(_)) => "create another team".to_owned(),
            Self::Refused(TeamRefusal::BeingMade(_)) => "try again in a moment".to_owned(),
            Self::Mail(MailError::NotAMember { .. }) => "team (action status) shows the members".to_owned(),
            Self::Mail(MailError::TooLong(_)) => {
                "put it into a note or a file, and send its path".to_owned()
            }
            Self::Mail(MailError::TooManyTasks { .. }) => {
                "collect the results with team (action receive), then send it again".to_owned()
            }
            Self::OwnerActive { .. } => {
                "wait until its session has ended, or use action destroy with force: true once it has made no call for 60 s"
                    .to_owned()
            }
            Self::OwnerConnected { .. } => {
                "create a team of your own; if that session does not need this one any more, use action destroy with \
                 force: true"
                    .to_owned()
            }
            Self::Member { source, .. } => return source.hint(),
            Self::Left { .. } => "try again once the cause is removed".to_owned(),
            Self::Store(MailStoreError::NoSpace { .. }) => "free space on the host's disk".to_owned(),
            Self::Store(MailStoreError::Closed) => "create another team".to_owned(),
            Self::Store(MailStoreError::TooLong) => {
                "put it into a note or a file, and send its path".to_owned()
            }
            Self::Store(MailStoreError::Io { .. } | MailStoreError::Full { .. }) => {
                "look at that file on the host, then try again".to_owned()
            }
        };
        Some(text)
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
