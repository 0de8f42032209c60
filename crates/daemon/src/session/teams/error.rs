//! Why something could not be done with a team.

use agentiso_core::team::{MailError, RoleName, TeamName, TeamRefusal};
use thiserror::Error;

use crate::error::OpError;

#[derive(Debug, Error)]
pub enum TeamError {
    #[error(transparent)]
    Refused(#[from] TeamRefusal),
    #[error(transparent)]
    Mail(#[from] MailError),
    #[error("team {name} belongs to a session that was active {idle_secs} s ago")]
    OwnerActive { name: TeamName, idle_secs: u64 },
    #[error("member {role} of team {team} could not be made, so the team was not: {source}")]
    Member {
        team: TeamName,
        role: RoleName,
        #[source]
        source: Box<OpError>,
    },
    #[error("team {team} could not be destroyed: {left} of its machines are left")]
    Left { team: TeamName, left: usize },
}

impl TeamError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Refused(TeamRefusal::NotFound { .. }) => "team_not_found",
            Self::Refused(TeamRefusal::NameTaken(_)) => "team_exists",
            Self::Refused(TeamRefusal::NoRoles | TeamRefusal::DuplicateRole(_)) => "bad_roles",
            Self::Refused(TeamRefusal::TooMany { .. }) => "team_budget",
            Self::Refused(TeamRefusal::TooDeep { .. }) => "team_too_deep",
            Self::Refused(TeamRefusal::Going(_)) => "team_going",
            Self::Refused(TeamRefusal::BeingMade(_)) => "team_being_made",
            Self::Mail(MailError::NotAMember { .. }) => "not_a_member",
            Self::Mail(MailError::TooLong(_)) => "message_too_long",
            Self::Mail(MailError::TooManyTasks { .. }) => "too_many_tasks",
            Self::OwnerActive { .. } => "owner_active",
            Self::Member { source, .. } => source.code(),
            Self::Left { .. } => "destroy_failed",
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Refused(TeamRefusal::NotFound { known, .. }) if known.is_empty() => {
                "there are no teams; make one with team (action create)".to_owned()
            }
            Self::Refused(TeamRefusal::NotFound { known, .. }) => format!("there are: {}", known.join(", ")),
            Self::Refused(TeamRefusal::NameTaken(_)) => {
                "choose another name, or destroy that team first with team (action destroy)".to_owned()
            }
            Self::Refused(TeamRefusal::NoRoles | TeamRefusal::DuplicateRole(_)) => {
                "give each member a name of its own".to_owned()
            }
            Self::Refused(TeamRefusal::TooMany { .. }) => {
                "ask for fewer roles, or for a larger max_vms of the topmost team".to_owned()
            }
            Self::Refused(TeamRefusal::TooDeep { .. }) => "make it below a team further up".to_owned(),
            Self::Refused(TeamRefusal::Going(_)) => "make another team".to_owned(),
            Self::Refused(TeamRefusal::BeingMade(_)) => "try again when it is there".to_owned(),
            Self::Mail(MailError::NotAMember { .. }) => "team (action status) shows the members".to_owned(),
            Self::Mail(MailError::TooLong(_)) => {
                "put it into a note or a file, and send where it is".to_owned()
            }
            Self::Mail(MailError::TooManyTasks { .. }) => {
                "collect the results with team (action receive), then send it again".to_owned()
            }
            Self::OwnerActive { .. } => "wait until its session is idle for 60 s or has ended".to_owned(),
            Self::Member { source, .. } => return source.hint(),
            Self::Left { .. } => "try again once the cause is removed".to_owned(),
        };
        Some(text)
    }

    pub(crate) fn retryable(&self) -> bool {
        match self {
            Self::OwnerActive { .. }
            | Self::Left { .. }
            | Self::Refused(TeamRefusal::BeingMade(_))
            | Self::Mail(MailError::TooManyTasks { .. }) => true,
            Self::Member { source, .. } => source.retryable(),
            Self::Refused(
                TeamRefusal::NotFound { .. }
                | TeamRefusal::NameTaken(_)
                | TeamRefusal::NoRoles
                | TeamRefusal::DuplicateRole(_)
                | TeamRefusal::TooMany { .. }
                | TeamRefusal::TooDeep { .. }
                | TeamRefusal::Going(_),
            )
            | Self::Mail(MailError::NotAMember { .. } | MailError::TooLong(_)) => false,
        }
    }
}
