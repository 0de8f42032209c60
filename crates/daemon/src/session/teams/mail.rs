//! Messages between members, and the results of the tasks that some messages assign.

use std::sync::Arc;
use std::time::Instant;

use agentiso_core::team::{Message, RoleName, TASK_ASSIGNMENT, TaskResult, Team, TeamName, TeamRefusal};
use uuid::Uuid;

use super::tasks;
use crate::error::{OpError, TeamError};
use crate::mail::{self, Slot};
use crate::session::Session;

/// A message that was delivered.
#[derive(Clone, Debug)]
pub struct Sent {
    pub message: Message,
    /// Number of messages that were displaced because an inbox was full.
    pub displaced: usize,
}

/// Messages and results that a member has received; they are not delivered again.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Oldest first.
    pub messages: Vec<Message>,
    pub results: Vec<TaskResult>,
    /// Number of results that did not fit.
    pub results_left: usize,
    /// Number of tasks that wait or run.
    pub pending: usize,
}

impl Session {
    /// Sends a message from one member to another, or to all. It is on disk when this returns. If it assigns a task,
    /// the task runs in the VMs of its recipients.
    pub async fn send_message(
        &self,
        team: &str,
        from: &str,
        to: &str,
        content: String,
        message_type: String,
    ) -> Result<Sent, OpError> {
        let _call = self.begin_call();
        self.refuse_when_closing()?;
        let message = Message {
            message_id: Uuid::new_v4(),
            from: from.to_owned(),
            to: to.to_owned(),
            content,
            message_type,
            timestamp: jiff::Timestamp::now(),
        };
        let (name, to) = self.shared().change(|registry| {
            let (name, team) = registry.own_team(team, self.id(), self.kind(), false, Instant::now())?;
            let recipients = team.recipients(&message).map_err(TeamError::from)?;
            let slots = recipients.into_iter().map(|role| {
                let slot = self.inbox(&name, team, &role)?;
                Ok::<_, OpError>((role, slot))
            });
            let slots = slots.collect::<Result<Vec<_>, _>>()?;
            Ok::<_, OpError>((name, slots))
        })?;
        let shared = Arc::clone(self.shared());
        let team = name.clone();
        let on_delivered = move |message: &Message, delivered: &mail::Delivered| {
            if message.message_type == TASK_ASSIGNMENT {
                for (role, pending) in &delivered.pending {
                    tasks::update_pending(&shared, &team, role, *pending, None);
                    tasks::start_waiting_tasks(&shared, &team, role);
                }
            }
        };
        let (message, delivered, ()) =
            mail::deliver(to, message, on_delivered).await.map_err(TeamError::from)?;
        // Checked under the lock that also covers the removal of a team, so that nothing is counted for a team that is
        // gone.
        let state = self.shared().state();
        if state.registry.teams.get(&name).is_some() {
            self.shared().metrics.sent(&name, &message.message_type);
        }
        drop(state);
        Ok(Sent { message, displaced: delivered.displaced })
    }

    /// Takes a member's oldest messages and results, up to `limit` of each. They are not delivered again, even after a
    /// restart.
    pub async fn receive_messages(&self, team: &str, agent: &str, limit: usize) -> Result<Received, OpError> {
        let _call = self.begin_call();
        let slot = self.shared().change(|registry| {
            let (name, team) = registry.own_team(team, self.id(), self.kind(), false, Instant::now())?;
            let member = team.find_member(agent).map_err(TeamError::from)?;
            self.inbox(&name, team, &member.name)
        })?;
        let taken = slot.run(move |inbox| inbox.take(limit)).await.map_err(TeamError::from)?;
        Ok(Received {
            messages: taken.messages,
            results: taken.results,
            results_left: taken.results_left,
            pending: taken.pending,
        })
    }

    /// The inbox of a member. Called under the registry's lock, so that no inbox is found once its team is being
    /// destroyed.
    fn inbox(&self, name: &TeamName, team: &Team, role: &RoleName) -> Result<Arc<Slot>, OpError> {
        if team.is_going() {
            return Err(TeamError::Refused(TeamRefusal::Going(name.clone())).into());
        }
        Ok(self.shared().mail.slot(name, team.created_at, role))
    }

    /// Checks that this session may act for a member of a team.
    pub fn check_team_member(&self, team: &str, agent: &str) -> Result<TeamName, OpError> {
        self.shared().change(|registry| {
            let (name, team) = registry.own_team(team, self.id(), self.kind(), false, Instant::now())?;
            team.find_member(agent).map_err(TeamError::from)?;
            Ok(name)
        })
    }
}
