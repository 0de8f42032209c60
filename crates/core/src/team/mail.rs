//! What members of a team write to each other: whom a message is for, and how much of it may wait.
//!
//! A [`Mailbox`] knows which messages wait and how many bytes each takes; their texts are where they are stored. When a
//! message does not fit, the sender who has most waiting pays for it: its oldest message gives way. So one who sends
//! without pause only displaces its own messages, and a box of one sender loses the oldest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use super::{RoleName, Team};

/// Messages that wait for one member.
pub const MAX_INBOX: usize = 100;

/// Bytes of one message.
pub const MAX_CONTENT: usize = 256 * 1024;

/// Bytes that all messages that wait for one member take where they are stored.
pub const MAX_INBOX_BYTES: usize = 4 * 1024 * 1024;
const _: () = assert!(MAX_INBOX_BYTES > 2 * MAX_CONTENT);

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

/// A message that waits, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub id: Uuid,
    pub from: String,
    /// What it takes where it is stored.
    pub bytes: usize,
}

/// What one sender has in a mailbox.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    letters: usize,
    bytes: usize,
}

/// The oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mailbox {
    letters: VecDeque<Letter>,
}

impl Mailbox {
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    pub fn len(&self) -> usize {
        self.letters.len()
    }

    pub fn bytes(&self) -> usize {
        self.letters.iter().map(|letter| letter.bytes).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Letter> {
        self.letters.iter()
    }

    /// The messages that give way so that this one fits.
    pub fn displaced_by(&self, new: &Letter) -> Vec<Uuid> {
        let mut left: Vec<&Letter> = self.letters.iter().collect();
        let mut displaced = Vec::new();
        loop {
            let bytes: usize = left.iter().map(|letter| letter.bytes).sum();
            let too_many = left.len() >= MAX_INBOX;
            if !too_many && bytes + new.bytes <= MAX_INBOX_BYTES {
                return displaced;
            }
            let mut shares: BTreeMap<&str, Share> = BTreeMap::new();
            for letter in left.iter().copied().chain([new]) {
                let share = shares.entry(&letter.from).or_default();
                share.letters += 1;
                share.bytes += letter.bytes;
            }
            let size = |from: &str| {
                let share = shares.get(from).copied().unwrap_or_default();
                // On a tie, the sender's oldest message is dropped.
                (if too_many { share.letters } else { share.bytes }, from == new.from)
            };
            let largest = left.iter().map(|letter| size(&letter.from)).max();
            let Some(oldest) = left.iter().position(|letter| Some(size(&letter.from)) == largest) else {
                return displaced;
            };
            displaced.push(left.remove(oldest).id);
        }
    }

    pub fn put(&mut self, letter: Letter) {
        self.letters.push_back(letter);
    }

    /// The oldest, except those that are on their way to somebody else.
    pub fn first(&self, limit: usize, lent: &BTreeSet<Uuid>) -> Vec<Uuid> {
        let free = self.letters.iter().map(|letter| letter.id).filter(|id| !lent.contains(id));
        free.take(limit).collect()
    }

    pub fn remove(&mut self, ids: &[Uuid]) {
        self.letters.retain(|letter| !ids.contains(&letter.id));
    }
}

impl Team {
    /// Whose inboxes a message belongs in. One to everybody goes to all but the sender, even if that is nobody.
    pub fn recipients(&self, message: &Message) -> Result<Vec<RoleName>, MailError> {
        self.check_member(&message.from)?;
        if message.content.len() > MAX_CONTENT {
            return Err(MailError::TooLong(message.content.len()));
        }
        let everybody = message.to == EVERYBODY;
        if !everybody {
            self.check_member(&message.to)?;
        }
        let names = self.members.iter().map(|member| &member.name);
        let meant = names.filter(|name| match everybody {
            true => name.as_str() != message.from,
            false => name.as_str() == message.to,
        });
        Ok(meant.cloned().collect())
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
    use crate::team::{Member, TeamState};

    fn team(roles: &[&str]) -> Team {
        Team {
            state: TeamState::Ready,
            created_at: Timestamp::UNIX_EPOCH,
            owner: SessionId::shell(),
            max_vms: 10,
            parent: None,
            members: roles.iter().map(|role| Member::for_tests(role)).collect(),
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

    fn letter(from: &str, bytes: usize) -> Letter {
        Letter { id: Uuid::new_v4(), from: from.to_owned(), bytes }
    }

    fn deliver(mail: &mut Mailbox, letter: Letter) -> usize {
        let displaced = mail.displaced_by(&letter);
        mail.remove(&displaced);
        mail.put(letter);
        displaced.len()
    }

    fn of(mail: &Mailbox, from: &str) -> usize {
        mail.iter().filter(|letter| letter.from == from).count()
    }

    #[test]
    fn recipients_are_members_and_never_the_sender() {
        let team = team(&["ann", "bob", "cy"]);
        let names = |message| -> Vec<String> {
            team.recipients(&message).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(message("ann", "bob", "1")), ["bob"]);
        assert_eq!(names(message("ann", "*", "2")), ["bob", "cy"]);
        assert_eq!(names(message("ann", "ann", "3")), ["ann"]);
    }

    #[test]
    fn a_message_to_everybody_is_fine_when_nobody_else_is_there() {
        assert_eq!(team(&["ann"]).recipients(&message("ann", "*", "hello")), Ok(Vec::new()));
    }

    #[test]
    fn strangers_and_long_messages_are_refused() {
        let team = team(&["ann", "bob"]);
        let unknown = team.recipients(&message("eve", "bob", "x")).unwrap_err();
        assert!(unknown.to_string().contains("ann, bob"), "{unknown}");
        assert!(team.recipients(&message("ann", "eve", "x")).is_err());
        let long = "x".repeat(MAX_CONTENT + 1);
        assert_eq!(team.recipients(&message("ann", "*", &long)), Err(MailError::TooLong(MAX_CONTENT + 1)));
    }

    #[test]
    fn a_full_inbox_loses_the_oldest() {
        let mut mail = Mailbox::default();
        let letters: Vec<_> = (0..103).map(|_| letter("ann", 10)).collect();
        for letter in &letters {
            deliver(&mut mail, letter.clone());
        }
        assert_eq!(mail.len(), 100, "a hundred, as the contract has it");
        assert_eq!(mail.first(1, &BTreeSet::new()), [letters[3].id]);
    }

    #[test]
    fn an_inbox_has_a_bound_in_bytes_too() {
        let mut mail = Mailbox::default();
        for _ in 0..MAX_INBOX {
            deliver(&mut mail, letter("ann", MAX_CONTENT));
        }
        assert_eq!((mail.len(), mail.bytes()), (MAX_INBOX_BYTES / MAX_CONTENT, MAX_INBOX_BYTES));
    }

    #[test]
    fn a_flood_displaces_only_its_own_messages() {
        for (bytes, fits) in [(10, MAX_INBOX), (MAX_CONTENT, MAX_INBOX_BYTES / MAX_CONTENT)] {
            let mut mail = Mailbox::default();
            deliver(&mut mail, letter("ann", bytes));
            deliver(&mut mail, letter("ann", bytes));
            for _ in 0..1000 {
                deliver(&mut mail, letter("eve", bytes));
            }
            assert_eq!((of(&mail, "ann"), of(&mail, "eve")), (2, fits - 2));
            assert_eq!(deliver(&mut mail, letter("ann", bytes)), 1);
            assert_eq!((of(&mail, "ann"), of(&mail, "eve")), (3, fits - 3));
        }
    }

    #[test]
    fn two_senders_share_a_full_inbox_equally() {
        let mut mail = Mailbox::default();
        for from in ["ann"; MAX_INBOX].into_iter().chain(["bob"; 1000]) {
            deliver(&mut mail, letter(from, 10));
        }
        assert_eq!((of(&mail, "ann"), of(&mail, "bob")), (50, 50));
    }

    #[test]
    fn lent_messages_are_given_to_nobody_else() {
        let mut mail = Mailbox::default();
        let (one, two) = (letter("ann", 1), letter("ann", 1));
        mail.put(one.clone());
        mail.put(two.clone());
        assert_eq!(mail.first(9, &BTreeSet::from([one.id])), [two.id]);
        mail.remove(&[one.id, two.id]);
        assert!(mail.is_empty());
    }
}
