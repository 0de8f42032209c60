//! Messages between members, and what came of the tasks among them.

use std::time::Instant;

use agentiso_core::team::{Message, RoleName, TASK_ASSIGNMENT, TaskResult, TeamName};
use uuid::Uuid;

use super::{TeamError, tasks};
use crate::error::OpError;
use crate::session::Session;

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
    ) -> Result<Message, OpError> {
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
        let (name, members) = self.shared().change(|registry| {
            let (name, team) = registry.own_team(team, self.id(), self.kind(), Instant::now())?;
            team.deliver(&message).map_err(TeamError::from)?;
            let members: Vec<RoleName> = team.members.iter().map(|member| member.name.clone()).collect();
            Ok::<_, OpError>((name, members))
        })?;
        if let Err(error) = self.shared().save().await {
            self.shared().change(|registry| {
                if let Some(team) = registry.teams.get_mut(&name) {
                    team.retract(&message.message_id);
                }
            });
            return Err(OpError::Ledger(error));
        }
        {
            // Under the lock that a team is removed under, so that nothing is counted for one that is gone.
            let state = self.shared().state();
            if state.registry.teams.get(&name).is_some() {
                self.shared().metrics.sent(&name, &message.message_type);
            }
        }
        if message.message_type == TASK_ASSIGNMENT {
            members.iter().for_each(|member| tasks::set_going(self.shared(), &name, member));
        }
        Ok(message)
    }

    /// Takes a member's oldest messages and results, so many of each. What was taken is not given again, also not after a
    /// restart.
    pub async fn receive_messages(&self, team: &str, agent: &str, limit: usize) -> Result<Received, OpError> {
        let _call = self.begin_call();
        let (name, received) = self.shared().change(|registry| {
            let (name, team) = registry.own_team(team, self.id(), self.kind(), Instant::now())?;
            team.check_member(agent).map_err(TeamError::from)?;
            let taken = team.member_mut(agent).map(|member| Received {
                messages: member.mail.take(limit),
                results: member.tasks.take_results(limit),
                results_left: member.tasks.results_left(),
                pending: member.tasks.pending().len(),
            });
            Ok::<_, OpError>((name, taken.unwrap_or_default()))
        })?;
        if received.messages.is_empty() && received.results.is_empty() {
            return Ok(received);
        }
        if let Err(error) = self.shared().save().await {
            self.shared().change(|registry| {
                let team = registry.teams.get_mut(&name);
                if let Some(member) = team.and_then(|team| team.member_mut(agent)) {
                    member.mail.give_back(received.messages);
                    member.tasks.give_back(received.results);
                }
            });
            return Err(OpError::Ledger(error));
        }
        Ok(received)
    }

    /// Whether this session may act for a member of a team.
    pub fn check_team_member(&self, team: &str, agent: &str) -> Result<TeamName, OpError> {
        self.shared().change(|registry| {
            let (name, team) = registry.own_team(team, self.id(), self.kind(), Instant::now())?;
            team.check_member(agent).map_err(TeamError::from)?;
            Ok(name)
        })
    }
}
