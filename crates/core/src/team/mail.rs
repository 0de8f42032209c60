//! Messages between members of a team: their recipients, and the bounds of an inbox.
//!
//! A [`InboxIndex`] is the index of one inbox: the messages that wait and the bytes that each takes. The texts are stored
//! elsewhere. When a message does not fit, the oldest message of the sender with the most waiting messages or bytes is
//! dropped. So a member that floods an inbox only displaces its own messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use super::{Member, RoleName, Team};

/// The most messages that wait for one member.
pub const MAX_INBOX: usize = 100;

/// The most bytes of one message.
pub const MAX_CONTENT: usize = 256 * 1024;

/// The most stored bytes of all messages that wait for one member.
pub const MAX_INBOX_BYTES: usize = 4 * 1024 * 1024;
const _: () = assert!(MAX_INBOX_BYTES > 2 * MAX_CONTENT);

/// The type of a message that the VM carries out as a command and that no member reads.
pub const TASK_ASSIGNMENT: &str = "task_assignment";

/// The address of a message to all members.
const EVERYBODY: &str = "*";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The same in the inboxes of all its recipients.
    pub message_id: Uuid,
    pub from: String,
    /// The address as the sender gave it.
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
    #[error("{who} has too many tasks that are unfinished or whose results were not fetched")]
    TooManyTasks { who: String },
}

/// A message that waits, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub id: Uuid,
    pub from: String,
    /// Its size in the store.
    pub bytes: usize,
}

/// The messages of one sender in an inbox.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    letters: usize,
    bytes: usize,
}

/// The messages that wait for one member, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxIndex {
    letters: VecDeque<Letter>,
}

impl InboxIndex {
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

    /// The messages to drop so that this one fits.
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
                // On a tie, the oldest message of the new message's own sender is dropped.
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

    /// The oldest messages, except those that are being delivered to another reader (`lent`).
    pub fn first(&self, limit: usize, lent: &BTreeSet<Uuid>) -> Vec<Uuid> {
        let free = self.letters.iter().map(|letter| letter.id).filter(|id| !lent.contains(id));
        free.take(limit).collect()
    }

    pub fn remove(&mut self, ids: &[Uuid]) {
        self.letters.retain(|letter| !ids.contains(&letter.id));
    }
}

impl Team {
    /// The recipients of a message. A message to all members goes to all but the sender, even if there is no other
    /// member.
    pub fn recipients(&self, message: &Message) -> Result<Vec<RoleName>, MailError> {
        self.find_member(&message.from)?;
        if message.content.len() > MAX_CONTENT {
            return Err(MailError::TooLong(message.content.len()));
        }
        let everybody = message.to == EVERYBODY;
        if !everybody {
            self.find_member(&message.to)?;
        }
        let names = self.members.iter().map(|member| &member.name);
        let meant = names.filter(|name| match everybody {
            true => name.as_str() != message.from,
            false => name.as_str() == message.to,
        });
        Ok(meant.cloned().collect())
    }

    pub fn find_member(&self, who: &str) -> Result<&Member, MailError> {
        self.member(who).ok_or_else(|| {
            let members = self.members.iter().map(|member| member.name.to_string()).collect();
            MailError::NotAMember { who: who.chars().take(80).collect(), members }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;
    use crate::team::TeamState;

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

    fn deliver(mail: &mut InboxIndex, letter: Letter) -> usize {
        let displaced = mail.displaced_by(&letter);
        mail.remove(&displaced);
        mail.put(letter);
        displaced.len()
    }

    fn of(mail: &InboxIndex, from: &str) -> usize {
        mail.iter().filter(|letter| letter.from == from).count()
    }

    #[test]
    fn broadcast_recipients_exclude_the_sender() {
        let team = team(&["ann", "bob", "cy"]);
        let names = |message| -> Vec<String> {
            team.recipients(&message).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(message("ann", "bob", "1")), ["bob"]);
        assert_eq!(names(message("ann", "*", "2")), ["bob", "cy"]);
        assert_eq!(names(message("ann", "ann", "3")), ["ann"]);
    }

    #[test]
    fn broadcast_in_single_member_team_is_allowed() {
        assert_eq!(team(&["ann"]).recipients(&message("ann", "*", "hello")), Ok(Vec::new()));
    }

    #[test]
    fn messages_from_strangers_or_overlong_are_refused() {
        let team = team(&["ann", "bob"]);
        let unknown = team.recipients(&message("eve", "bob", "x")).unwrap_err();
        assert!(unknown.to_string().contains("ann, bob"), "{unknown}");
        assert!(team.recipients(&message("ann", "eve", "x")).is_err());
        let long = "x".repeat(MAX_CONTENT + 1);
        assert_eq!(team.recipients(&message("ann", "*", &long)), Err(MailError::TooLong(MAX_CONTENT + 1)));
    }

    #[test]
    fn full_inbox_drops_the_oldest_message() {
        let mut mail = InboxIndex::default();
        let letters: Vec<_> = (0..103).map(|_| letter("ann", 10)).collect();
        for letter in &letters {
            deliver(&mut mail, letter.clone());
        }
        assert_eq!(mail.len(), 100, "a hundred, as the contract has it");
        assert_eq!(mail.first(1, &BTreeSet::new()), [letters[3].id]);
    }

    #[test]
    fn inbox_is_bounded_in_bytes() {
        let mut mail = InboxIndex::default();
        for _ in 0..MAX_INBOX {
            deliver(&mut mail, letter("ann", MAX_CONTENT));
        }
        assert_eq!((mail.len(), mail.bytes()), (MAX_INBOX_BYTES / MAX_CONTENT, MAX_INBOX_BYTES));
    }

    #[test]
    fn flood_displaces_only_its_own_messages() {
        for (bytes, fits) in [(10, MAX_INBOX), (MAX_CONTENT, MAX_INBOX_BYTES / MAX_CONTENT)] {
            let mut mail = InboxIndex::default();
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
        let mut mail = InboxIndex::default();
        for from in ["ann"; MAX_INBOX].into_iter().chain(["bob"; 1000]) {
            deliver(&mut mail, letter(from, 10));
        }
        assert_eq!((of(&mail, "ann"), of(&mail, "bob")), (50, 50));
    }

    #[test]
    fn messages_being_delivered_are_skipped() {
        let mut mail = InboxIndex::default();
        let (one, two) = (letter("ann", 1), letter("ann", 1));
        mail.put(one.clone());
        mail.put(two.clone());
        assert_eq!(mail.first(9, &BTreeSet::from([one.id])), [two.id]);
        mail.remove(&[one.id, two.id]);
        assert!(mail.is_empty());
    }
}
