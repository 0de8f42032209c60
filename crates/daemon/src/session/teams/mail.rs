//! Messages between members, and what came of the tasks among them.

use std::sync::Arc;
use std::time::Instant;

use agentiso_core::team::{Message, RoleName, TASK_ASSIGNMENT, TaskResult, Team, TeamName, TeamRefusal};
use uuid::Uuid;

use super::{TeamError, tasks};
use crate::error::OpError;
use crate::mail::{self, Slot};
use crate::session::Session;

/// A message that was delivered.
#[derive(Clone, Debug)]
pub struct Sent {
    pub message: Message,
    /// Messages that gave way to it because an inbox was full.
    pub displaced: usize,
}

/// What a member is given; it is not given again.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The oldest first.
    pub messages: Vec<Message>,
    pub results: Vec<TaskResult>,
    /// Results that did not fit.
    pub results_left: usize,
    /// Tasks that wait or run.
    pub pending: usize,
}

impl Session {
    /// Sends a message from one member to another, or to all. It is on disk when this returns. One that assigns a task is
    /// carried out in the machines of those it is for.
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
        let told = move |message: &Message, delivered: &mail::Delivered| {
            if message.message_type == TASK_ASSIGNMENT {
                for (role, pending) in &delivered.pending {
                    tasks::count(&shared, &team, role, *pending, None);
                    tasks::set_going(&shared, &team, role);
                }
            }
        };
        let (message, delivered, ()) = mail::deliver(to, message, told).await.map_err(TeamError::from)?;
        // Under the lock that a team is removed under, so that nothing is counted for one that is gone.
        let state = self.shared().state();
        if state.registry.teams.get(&name).is_some() {
            self.shared().metrics.sent(&name, &message.message_type);
        }
        drop(state);
        Ok(Sent { message, displaced: delivered.displaced })
    }

    /// Takes a member's oldest messages and results, so many of each. What was taken is not given again, also not after a
    /// restart.
    pub async fn receive_messages(&self, team: &str, agent: &str, limit: usize) -> Result<Received, OpError> {
        let _call = self.begin_call();
        let slot = self.shared().change(|registry| {
            let (name, team) = registry.own_team(team, self.id(), self.kind(), false, Instant::now())?;
            team.check_member(agent).map_err(TeamError::from)?;
            match team.member(agent).map(|member| member.name.clone()) {
                Some(role) => self.inbox(&name, team, &role),
                None => Err(OpError::Cancelled),
            }
        })?;
        let taken = slot.run(move |inbox| inbox.take(limit)).await.map_err(TeamError::from)?;
        Ok(Received {
            messages: taken.messages,
            results: taken.results,
            results_left: taken.results_left,
            pending: taken.pending,
        })
    }

    /// The inbox of a member. It is asked for under the registry's lock, so that none is found once its team goes.
    fn inbox(&self, name: &TeamName, team: &Team, role: &RoleName) -> Result<Arc<Slot>, OpError> {
        if team.is_going() {
            return Err(TeamError::Refused(TeamRefusal::Going(name.clone())).into());
        }
        Ok(self.shared().mail.slot(name, team.created_at, role))
    }

    /// Whether this session may act for a member of a team.
    pub fn check_team_member(&self, team: &str, agent: &str) -> Result<TeamName, OpError> {
        self.shared().change(|registry| {
            let (name, team) = registry.own_team(team, self.id(), self.kind(), false, Instant::now())?;
            team.check_member(agent).map_err(TeamError::from)?;
            Ok(name)
        })
    }
}
