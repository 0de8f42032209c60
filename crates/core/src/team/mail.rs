//! What members of a team write to each other.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use super::{Member, Team};

/// Messages that wait for one member. The oldest gives way to a newer one.
pub const MAX_INBOX: usize = 100;

/// Bytes of one message.
pub const MAX_CONTENT: usize = 256 * 1024;

/// Bytes of all messages that wait for one member: they are in the ledger, which is written after each of them.
pub const MAX_INBOX_BYTES: usize = 4 * 1024 * 1024;
const _: () = assert!(MAX_INBOX_BYTES > MAX_CONTENT);

/// The type of a message that is carried out by the machine and not read.
pub const TASK_ASSIGNMENT: &str = "task_assignment";

/// Whom a message to everybody is addressed to.
const EVERYBODY: &str = "*";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The same in every inbox that it was put in.
    pub message_id: Uuid,
    pub from: String,
    /// As it was addressed.
    pub to: String,
    pub content: String,
    pub message_type: String,
    pub timestamp: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MailError {
    #[error("{who:?} is not a member of the team; its members are {}", .members.join(", "))]
    NotAMember { who: String, members: Vec<String> },
    #[error("the message has {0} bytes; at most {MAX_CONTENT} are allowed")]
    TooLong(usize),
    #[error("{who} has too many tasks that are not finished or whose results were not received")]
    TooManyTasks { who: String },
}

/// The oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mailbox(VecDeque<Message>);

impl Mailbox {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn put(&mut self, message: Message) {
        let bytes =
            |mail: &VecDeque<Message>| mail.iter().map(|message| message.content.len()).sum::<usize>();
        while self.0.len() >= MAX_INBOX || bytes(&self.0) + message.content.len() > MAX_INBOX_BYTES {
            self.0.pop_front();
        }
        self.0.push_back(message);
    }

    /// Removes what it returns.
    pub fn take(&mut self, limit: usize) -> Vec<Message> {
        let count = limit.min(self.0.len());
        self.0.drain(..count).collect()
    }

    /// Puts back what was taken and could not be handed over.
    pub fn give_back(&mut self, messages: Vec<Message>) {
        messages.into_iter().rev().for_each(|message| self.0.push_front(message));
    }

    fn retract(&mut self, message_id: &Uuid) {
        self.0.retain(|message| message.message_id != *message_id);
    }
}

impl Team {
    /// Puts a message where it is addressed to, into mailboxes or among tasks. One to everybody goes to all but the sender, even if that is nobody.
    pub fn deliver(&mut self, message: &Message) -> Result<(), MailError> {
        self.check_member(&message.from)?;
        if message.content.len() > MAX_CONTENT {
            return Err(MailError::TooLong(message.content.len()));
        }
        if message.to != EVERYBODY {
            self.check_member(&message.to)?;
        }
        let everybody = message.to == EVERYBODY;
        let is_task = message.message_type == TASK_ASSIGNMENT;
        let is_meant = |member: &Member| {
            let name = member.name.as_str();
            if everybody { name != message.from } else { name == message.to }
        };
        for member in self.members.iter().filter(|member| is_task && is_meant(member)) {
            member.tasks.admit(member.name.as_str(), message.content.len())?;
        }
        for member in self.members.iter_mut().filter(|member| is_meant(member)) {
            if is_task {
                member.tasks.give(message.message_id, &message.content);
            } else {
                member.mail.put(message.clone());
            }
        }
        Ok(())
    }

    /// Takes a message back that could not be kept.
    pub fn retract(&mut self, message_id: &Uuid) {
        for member in &mut self.members {
            member.mail.retract(message_id);
            member.tasks.retract(message_id);
        }
    }

    pub fn check_member(&self, who: &str) -> Result<(), MailError> {
        match self.member(who) {
            Some(_) => Ok(()),
            None => {
                let members = self.members.iter().map(|member| member.name.to_string()).collect();
                Err(MailError::NotAMember { who: who.chars().take(80).collect(), members })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;
    use crate::team::{AgentStatus, RoleName, Tasks, TeamState};

    fn team(roles: &[&str]) -> Team {
        let member = |role: &&str| Member {
            name: RoleName::parse(role).unwrap(),
            role: "worker".to_owned(),
            skills: Vec::new(),
            description: None,
            workspace: crate::names::WorkspaceName::parse(role).unwrap(),
            workspace_id: None,
            status: AgentStatus::Ready,
            on_board: false,
            mail: Mailbox::default(),
            tasks: Tasks::default(),
        };
        Team {
            state: TeamState::Ready,
            created_at: Timestamp::UNIX_EPOCH,
            owner: SessionId::shell(),
            max_vms: 10,
            parent: None,
            members: roles.iter().map(member).collect(),
        }
    }

    fn message(from: &str, to: &str, content: &str) -> Message {
        Message {
            message_id: Uuid::new_v4(),
            from: from.to_owned(),
            to: to.to_owned(),
            content: content.to_owned(),
            message_type: "text".to_owned(),
            timestamp: Timestamp::UNIX_EPOCH,
        }
    }

    fn received(team: &mut Team, who: &str, limit: usize) -> Vec<String> {
        let mail = &mut team.member_mut(who).unwrap().mail;
        mail.take(limit).into_iter().map(|message| message.content).collect()
    }

    #[test]
    fn a_message_is_received_once_by_whom_it_is_for() {
        let mut team = team(&["ann", "bob", "cy"]);
        team.deliver(&message("ann", "bob", "1")).unwrap();
        team.deliver(&message("ann", "*", "2")).unwrap();
        assert_eq!(received(&mut team, "bob", 1), ["1"]);
        assert_eq!(received(&mut team, "bob", 10), ["2"]);
        assert_eq!(received(&mut team, "bob", 10), [""; 0]);
        assert_eq!(received(&mut team, "cy", 10), ["2"]);
        assert_eq!(received(&mut team, "ann", 10), [""; 0]);
    }

    #[test]
    fn a_message_to_everybody_is_fine_when_nobody_else_is_there() {
        let mut team = team(&["ann"]);
        assert_eq!(team.deliver(&message("ann", "*", "hello")), Ok(()));
    }

    #[test]
    fn strangers_and_long_messages_are_refused_and_leave_nothing() {
        let mut team = team(&["ann", "bob"]);
        let unknown = team.deliver(&message("eve", "bob", "x")).unwrap_err();
        assert!(unknown.to_string().contains("ann, bob"), "{unknown}");
        assert!(team.deliver(&message("ann", "eve", "x")).is_err());
        let long = "x".repeat(MAX_CONTENT + 1);
        assert_eq!(team.deliver(&message("ann", "*", &long)), Err(MailError::TooLong(MAX_CONTENT + 1)));
        assert!(team.members.iter().all(|member| member.mail.is_empty()));
    }

    #[test]
    fn a_full_inbox_loses_the_oldest() {
        let mut team = team(&["ann", "bob"]);
        for number in 0..MAX_INBOX + 3 {
            team.deliver(&message("ann", "bob", &number.to_string())).unwrap();
        }
        let all = received(&mut team, "bob", usize::MAX);
        assert_eq!((all.len(), all[0].as_str()), (MAX_INBOX, "3"));
    }

    #[test]
    fn an_inbox_has_a_bound_in_bytes_too() {
        let mut team = team(&["ann", "bob"]);
        let long = "x".repeat(MAX_CONTENT);
        for _ in 0..MAX_INBOX {
            team.deliver(&message("ann", "bob", &long)).unwrap();
        }
        assert_eq!(received(&mut team, "bob", usize::MAX).len(), MAX_INBOX_BYTES / MAX_CONTENT);
    }

    #[test]
    fn a_task_is_no_mail_and_all_get_it_or_none() {
        let mut team = team(&["ann", "bob", "cy"]);
        let task = |to: &str| Message {
            message_type: TASK_ASSIGNMENT.to_owned(),
            ..message("ann", to, r#"{"task_id": "t", "command": "true"}"#)
        };
        team.deliver(&task("*")).unwrap();
        let pending = |team: &Team| team.members.iter().map(|m| m.tasks.pending().len()).collect::<Vec<_>>();
        assert_eq!(pending(&team), [0, 1, 1]);
        assert!(team.members.iter().all(|member| member.mail.is_empty()));
        while team.deliver(&task("bob")).is_ok() {}
        assert!(team.deliver(&task("*")).is_err());
        assert_eq!(pending(&team), [0, crate::team::MAX_TASKS, 1]);
    }
}
