//! The inboxes of all members. An inbox is found by team and role, is used by one task at a time, and a message is put
//! into several of them at once.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agentiso_core::team::{
    Assignment, MailError, Message, RoleName, StoredMail, StoredStep, TASK_ASSIGNMENT, Task, TaskResult,
    Team, TeamName, Teams,
};
use agentiso_sys::files::is_out_of_space;
use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use super::entry::Entry;
use super::inbox::{self, Inbox, LentIds, PendingWrite};

#[derive(Debug, Error)]
pub enum MailStoreError {
    #[error("no space left on the disk of {path}")]
    NoSpace { path: PathBuf },
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is full and cannot be compacted")]
    Full { path: PathBuf },
    #[error("the entry is too long for an inbox")]
    TooLong,
    #[error("the team was destroyed")]
    Closed,
}

impl MailStoreError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if is_out_of_space(&source) { Self::NoSpace { path } } else { Self::Io { path, source } }
    }
}

/// An inbox behind a lock, and the ids of its lent messages.
#[derive(Debug)]
pub(crate) struct Slot {
    path: PathBuf,
    inbox: Arc<tokio::sync::Mutex<Inbox>>,
    lent: LentIds,
}

impl Slot {
    fn new(path: PathBuf) -> Self {
        let lent = LentIds::default();
        let inbox = Inbox::new(path.clone(), Arc::clone(&lent));
        Self { path, inbox: Arc::new(tokio::sync::Mutex::new(inbox)), lent }
    }

    /// Runs work on the inbox, to its end once it has begun.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Inbox) -> Result<T, MailStoreError> + Send + 'static,
    ) -> Result<T, MailStoreError> {
        let mut inbox = Arc::clone(&self.inbox).lock_owned().await;
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || work(&mut inbox))
            .await
            .unwrap_or_else(|error| Err(MailStoreError::io(&path, io::Error::other(error))))
    }

    /// Ends the loan of messages, so that those that are still in the inbox can be received again.
    pub(crate) fn take_back(&self, ids: &[Uuid]) {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| !ids.contains(id));
    }

    /// The pending tasks, at a time when nothing else uses the inbox yet.
    pub(crate) fn tasks_at_start(&self) -> Vec<Task> {
        self.inbox.try_lock().map(|inbox| inbox.pending().to_vec()).unwrap_or_default()
    }
}

#[derive(Debug)]
pub(crate) struct MailStore {
    root: PathBuf,
    slots: Mutex<HashMap<PathBuf, Arc<Slot>>>,
}

impl MailStore {
    /// Reads the inboxes of all members. Mail in a ledger of an earlier version is moved into them: it is on disk when
    /// this returns, and is entered only once, however often that ledger is read.
    pub(crate) fn open(root: PathBuf, teams: &mut Teams) -> Result<Self, MailStoreError> {
        let store = Self { root, slots: Mutex::default() };
        for (name, team) in teams.iter_mut() {
            store.load(name, team)?;
        }
        Ok(store)
    }

    /// Reads the inboxes of a team that is not in use yet, and sets the members' pending tasks.
    pub(crate) fn load(&self, name: &TeamName, team: &mut Team) -> Result<(), MailStoreError> {
        let created_at = team.created_at;
        for member in &mut team.members {
            let slot = self.slot(name, created_at, &member.name);
            let Ok(mut inbox) = slot.inbox.try_lock() else { continue };
            if let Err(error) = inbox.load() {
                tracing::error!(team = %name, member = %member.name, %error, "cannot read an inbox; will retry");
            }
            let stored = member.take_stored_mail();
            if !stored.is_empty() {
                import_stored_mail(&mut inbox, &stored)?;
            }
            member.found_tasks(inbox.pending().len(), inbox.last_ended());
        }
        Ok(())
    }

    /// The inbox of a member. Teams that are made one after another under the same name have separate inboxes.
    pub(crate) fn slot(&self, team: &TeamName, created_at: Timestamp, role: &RoleName) -> Arc<Slot> {
        let path = path(&self.root, team, created_at, role);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(path.clone()).or_insert_with(|| Arc::new(Slot::new(path))))
    }

    /// Removes the inboxes of a team that is being destroyed. No one may ask for them any more.
    pub(crate) async fn discard(&self, team: &TeamName, created_at: Timestamp, roles: &[RoleName]) {
        for role in roles {
            let slot = self.slot(team, created_at, role);
            self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot.path);
            if let Err(error) = slot.run(Inbox::close).await {
                tracing::error!(%team, %role, %error, "cannot remove an inbox of a destroyed team");
            }
        }
        let directory = self.directory(team, created_at);
        match tokio::fs::remove_dir(&directory).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %error, "cannot remove the mail directory of a destroyed team");
            }
        }
    }

    /// Directory of a team's mail.
    pub(crate) fn directory(&self, team: &TeamName, created_at: Timestamp) -> PathBuf {
        directory(&self.root, team, created_at)
    }
}

fn directory(root: &Path, team: &TeamName, created_at: Timestamp) -> PathBuf {
    root.join(format!("{team}.{}", created_at.as_nanosecond()))
}

fn path(root: &Path, team: &TeamName, created_at: Timestamp, role: &RoleName) -> PathBuf {
    directory(root, team, created_at).join(format!("{role}.log"))
}

fn import_stored_mail(inbox: &mut Inbox, stored: &StoredMail) -> Result<(), MailStoreError> {
    for message in &stored.messages {
        if !inbox.knows(&message.message_id) {
            // Nothing is displaced here, even if all messages together are slightly longer than they were in the
            // ledger.
            inbox.enter(&[Entry::Message(message)])?;
        }
    }
    for result in &stored.results {
        if !inbox.knows(&result.source_message_id) {
            inbox.enter(&[Entry::Result(result)])?;
        }
    }
    for task in &stored.tasks {
        let (message_id, task_id) = (task.message_id, task.task_id.as_str());
        if inbox.knows(&message_id) {
            continue;
        }
        let under_way = task.step.under_way();
        let entry = match (&task.step, &under_way) {
            (StoredStep::Waiting { assignment }, _) => Entry::Task { message_id, assignment },
            (StoredStep::Running { .. }, Some(job)) => Entry::Running { message_id, task_id, job },
            (StoredStep::Running { .. } | StoredStep::Starting, _) => Entry::Starting { message_id, task_id },
        };
        inbox.enter(&[entry])?;
    }
    Ok(())
}

#[derive(Debug, Error)]
pub(crate) enum DeliverError {
    #[error(transparent)]
    Refused(#[from] MailError),
    #[error(transparent)]
    Store(#[from] MailStoreError),
}

/// The effect of a message that is in the inboxes of all its recipients.
#[derive(Debug)]
pub(crate) struct Delivered {
    /// Number of messages that were displaced, in all inboxes together.
    pub(crate) displaced: usize,
    /// Number of pending tasks of each recipient.
    pub(crate) pending: Vec<(RoleName, usize)>,
}

/// Puts a message into all of the inboxes or none, and calls `then` before anybody else can use them. Once begun it
/// goes to its end, even if the future is dropped.
pub(crate) async fn deliver<T: Send + 'static>(
    mut to: Vec<(RoleName, Arc<Slot>)>,
    message: Message,
    then: impl FnOnce(&Message, &Delivered) -> T + Send + 'static,
) -> Result<(Message, Delivered, T), DeliverError> {
    // Locked in a fixed order, so that two messages to all members cannot deadlock.
    to.sort_by(|a, b| a.1.path.cmp(&b.1.path));
    let mut inboxes = Vec::with_capacity(to.len());
    for (role, slot) in to {
        inboxes.push((role, Arc::clone(&slot.inbox).lock_owned().await));
    }
    let work = move || {
        let delivered = deliver_now(&mut inboxes, &message)?;
        let done = then(&message, &delivered);
        Ok((message, delivered, done))
    };
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(MailStoreError::io(Path::new("mail"), io::Error::other(error)).into()))
}

type LockedInbox = (RoleName, OwnedMutexGuard<Inbox>);

fn deliver_now(inboxes: &mut [LockedInbox], message: &Message) -> Result<Delivered, DeliverError> {
    let id = message.message_id;
    let (assignment, not_understood);
    let task = match (message.message_type == TASK_ASSIGNMENT).then(|| Assignment::parse(&message.content)) {
        None => None,
        Some(Ok(parsed)) => {
            assignment = parsed;
            Some(Entry::Task { message_id: id, assignment: &assignment })
        }
        Some(Err(problem)) => {
            not_understood = TaskResult::not_understood(id, problem);
            Some(Entry::Result(&not_understood))
        }
    };
    if let Some(task) = &task {
        for (role, inbox) in inboxes.iter_mut() {
            inbox.admit(role.as_str(), task)??;
        }
    }
    let mut written: Vec<PendingWrite> = Vec::with_capacity(inboxes.len());
    let mut displaced = 0;
    let all = inboxes.iter_mut().try_for_each(|(_, inbox)| {
        let (one, gone) = match &task {
            Some(task) => (inbox.write(std::slice::from_ref(task))?, 0),
            None => inbox.write_message(message)?,
        };
        written.push(one);
        displaced += gone;
        Ok::<_, MailStoreError>(())
    });
    if let Err(error) = all {
        for ((_, inbox), one) in inboxes.iter_mut().zip(written) {
            inbox.undo(one);
        }
        return Err(error.into());
    }
    for ((_, inbox), one) in inboxes.iter_mut().zip(written) {
        inbox.commit(one);
    }
    let pending = inboxes.iter().map(|(role, inbox)| (role.clone(), inbox.pending().len())).collect();
    Ok(Delivered { displaced, pending })
}

/// Number of messages and tasks that wait for a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailCounts {
    pub messages: usize,
    pub tasks: usize,
}

/// Counts the entries of an inbox without a daemon, and changes nothing.
pub fn count(
    root: &Path,
    team: &TeamName,
    created_at: Timestamp,
    role: &RoleName,
) -> Result<MailCounts, MailStoreError> {
    let path = path(root, team, created_at, role);
    let (messages, tasks) = inbox::counts(&path).map_err(|source| MailStoreError::io(&path, source))?;
    Ok(MailCounts { messages, tasks })
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
