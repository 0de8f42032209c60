//! What members of a team write to each other.

use std::collections::{BTreeSet, VecDeque};

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
pub struct Mailbox {
    messages: VecDeque<Message>,
    /// Those that are on their way to somebody; nobody else is given them meanwhile. A restart forgets that they are.
    #[serde(skip)]
    lent: BTreeSet<Uuid>,
}

impl Mailbox {
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    fn fits(&self, message: &Message) -> bool {
        let bytes: usize = self.messages.iter().map(|message| message.content.len()).sum();
        self.messages.len() < MAX_INBOX && bytes + message.content.len() <= MAX_INBOX_BYTES
    }

    fn put(&mut self, message: Message) {
        while !self.fits(&message)
            && let Some(oldest) = self.messages.pop_front()
        {
            self.lent.remove(&oldest.message_id);
        }
        self.messages.push_back(message);
    }

    /// Removes what it returns.
    pub fn take(&mut self, limit: usize) -> Vec<Message> {
        let mut taken = Vec::new();
        let mut kept = VecDeque::new();
        for message in self.messages.drain(..) {
            if taken.len() < limit && !self.lent.contains(&message.message_id) {
                taken.push(message);
            } else {
                kept.push_back(message);
            }
        }
        self.messages = kept;
        taken
    }

    /// Puts back what was taken and could not be handed over. As ever, the oldest give way where there is no room.
    pub fn give_back(&mut self, messages: Vec<Message>) {
        for message in messages.into_iter().rev() {
            if !self.fits(&message) {
                return;
            }
            self.messages.push_front(message);
        }
    }

    /// Copies of all that nobody has been lent. They stay here until they are removed, and nobody else gets them until
    /// they are taken back.
    pub fn lend(&mut self) -> Vec<Message> {
        let free = self.messages.iter().filter(|message| !self.lent.contains(&message.message_id));
        let messages: Vec<_> = free.cloned().collect();
        self.lent.extend(messages.iter().map(|message| message.message_id));
        messages
    }

    /// Those who were lent them have not got them.
    pub fn take_back(&mut self, ids: &[Uuid]) {
        self.lent.retain(|id| !ids.contains(id));
    }

    pub fn remove(&mut self, ids: &[Uuid]) {
        self.messages.retain(|message| !ids.contains(&message.message_id));
        self.take_back(ids);
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
            member.mail.remove(&[*message_id]);
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
        for number in 0..103 {
            team.deliver(&message("ann", "bob", &number.to_string())).unwrap();
        }
        let all = received(&mut team, "bob", usize::MAX);
        assert_eq!((all.len(), all[0].as_str()), (100, "3"), "a hundred, as the contract has it");
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
    fn what_is_lent_stays_and_is_given_to_nobody_else() {
        let mut team = team(&["ann", "bob"]);
        team.deliver(&message("ann", "bob", "1")).unwrap();
        let mail = &mut team.member_mut("bob").unwrap().mail;
        let lent: Vec<_> = mail.lend().iter().map(|message| message.message_id).collect();
        assert_eq!((lent.len(), mail.lend().len(), mail.take(9).len(), mail.len()), (1, 0, 0, 1));
        let stored = serde_json::to_string(mail).unwrap();
        assert_eq!(serde_json::from_str::<Mailbox>(&stored).unwrap().take(9).len(), 1, "{stored}");
        team.deliver(&message("ann", "bob", "2")).unwrap();
        assert_eq!(received(&mut team, "bob", 9), ["2"]);
        team.member_mut("bob").unwrap().mail.take_back(&lent);
        assert_eq!(received(&mut team, "bob", 9), ["1"]);
    }

    #[test]
    fn what_is_lent_is_gone_once_it_is_removed_or_retracted() {
        let mut team = team(&["ann", "bob"]);
        let (one, two) = (message("ann", "bob", "1"), message("ann", "bob", "2"));
        for message in [&one, &two] {
            team.deliver(message).unwrap();
        }
        assert_eq!(team.member_mut("bob").unwrap().mail.lend().len(), 2);
        team.member_mut("bob").unwrap().mail.remove(&[one.message_id]);
        team.retract(&two.message_id);
        assert_eq!(team.member("bob").unwrap().mail, Mailbox::default());
    }

    #[test]
    fn what_is_given_back_does_not_make_an_inbox_larger_than_it_may_be() {
        let mut team = team(&["ann", "bob"]);
        let deliver = |team: &mut Team, numbers: std::ops::Range<usize>| {
            for number in numbers {
                team.deliver(&message("ann", "bob", &number.to_string())).unwrap();
            }
        };
        deliver(&mut team, 0..3);
        let taken = team.member_mut("bob").unwrap().mail.take(9);
        deliver(&mut team, 3..MAX_INBOX + 1);
        team.member_mut("bob").unwrap().mail.give_back(taken);
        let all = received(&mut team, "bob", usize::MAX);
        assert_eq!((all.len(), all[0].as_str()), (MAX_INBOX, "1"));
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
