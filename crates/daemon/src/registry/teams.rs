//! Teams in the registry: the check that a session may change one.

use std::time::Instant;

use agentiso_core::ids::SessionId;
use agentiso_core::team::{Team, TeamName};

use super::sessions::{SessionKind, TakeoverRefusal};
use super::table::Registry;
use crate::error::{OpError, TeamError};

impl Registry {
    /// Returns a team that the session may change: its own, or one whose owner is gone (with force: or silent). The
    /// session then owns it.
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
            self.sessions.may_be_taken_over(&team.owner, force, now).map_err(|kept| match kept {
                TakeoverRefusal::Active(idle) => TeamError::OwnerActive { name, idle_secs: idle.as_secs() },
                TakeoverRefusal::Connected(idle) => {
                    TeamError::OwnerConnected { name, idle_secs: idle.as_secs() }
                }
            })?;
        }
        let Some(team) = self.teams.get_mut(&name) else { unreachable!("it was just found") };
        if kind == SessionKind::Client {
            team.owner = session.clone();
        }
        Ok((name, team))
    }
}
