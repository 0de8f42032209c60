//! Teams in the registry: who may do something with one.

use std::time::Instant;

use agentiso_core::ids::SessionId;
use agentiso_core::team::{Team, TeamName};

use super::sessions::{Kept, SessionKind};
use super::table::Registry;
use crate::error::OpError;
use crate::session::TeamError;

impl Registry {
    /// A team that the session may do something with: its own, or one whose owner is gone (by force: or silent), which
    /// then is its own.
    pub(crate) fn own_team(
        &mut self,
        wanted: &str,
        session: &SessionId,
        kind: SessionKind,
        force: bool,
        now: Instant,
    ) -> Result<(TeamName, &mut Team), OpError> {
        kind.refuse_inside()?;
        let (name, team) = self.teams.find(wanted).map_err(TeamError::from)?;
        let name = name.clone();
        if kind == SessionKind::Client && team.owner != *session {
            let name = name.clone();
            self.sessions.may_be_robbed(&team.owner, force, now).map_err(|kept| match kept {
                Kept::Active(idle) => TeamError::OwnerActive { name, idle_secs: idle.as_secs() },
                Kept::Connected(idle) => TeamError::OwnerConnected { name, idle_secs: idle.as_secs() },
            })?;
        }
        let Some(team) = self.teams.get_mut(&name) else { return Err(OpError::Cancelled) };
        if kind == SessionKind::Client {
            team.owner = session.clone();
        }
        Ok((name, team))
    }
}
