//! Teams in the registry: who may do something with one.

use std::time::Instant;

use agentiso_core::ids::SessionId;
use agentiso_core::team::{Team, TeamName};

use super::sessions::SessionKind;
use super::table::Registry;
use crate::error::OpError;
use crate::session::TeamError;

impl Registry {
    /// A team that the session may do something with: its own, or one whose owner is gone or silent, which then is its
    /// own.
    pub(crate) fn own_team(
        &mut self,
        wanted: &str,
        session: &SessionId,
        kind: SessionKind,
        now: Instant,
    ) -> Result<(TeamName, &mut Team), OpError> {
        kind.refuse_inside()?;
        let (name, team) = self.teams.find(wanted).map_err(TeamError::from)?;
        let name = name.clone();
        if kind == SessionKind::Client && team.owner != *session {
            self.sessions
                .may_be_robbed(&team.owner, now)
                .map_err(|idle| TeamError::OwnerActive { name: name.clone(), idle_secs: idle.as_secs() })?;
        }
        let Some(team) = self.teams.get_mut(&name) else { return Err(OpError::Cancelled) };
        if kind == SessionKind::Client {
            team.owner = session.clone();
        }
        Ok((name, team))
    }
}
