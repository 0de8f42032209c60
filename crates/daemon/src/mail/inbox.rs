//! One member's inbox, in memory and in its file. All functions here block.
//!
//! A change is written and synced before it is applied in memory, so a failed write changes nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agentiso_core::team::{
    Assignment, Letter, MAX_INBOX_BYTES, MAX_TASK_BYTES, MailError, Message, Outcome, Task, TaskResult,
    TaskStep, UnderWay,
};
use uuid::Uuid;

use super::contents::Contents;
use super::entry::{Entry, Head};
use super::frame::{self, MAGIC, Next};
use super::log::{FileBytes, FrameRange, Log, read_all};
use super::store::MailStoreError;

/// Obsolete bytes that are not worth a rewrite.
const SLACK: u64 = 64 * 1024;

/// Bytes of an inbox's file above which no message or task is added. Rewriting keeps the file smaller; this is the
/// limit when rewriting fails.
const MAX_FILE: u64 = 16 << 20;
const _: () = assert!(MAX_FILE > (MAX_INBOX_BYTES + MAX_TASK_BYTES) as u64 * 3 / 2 + 2 * SLACK);

/// A larger file is not read but copied aside.
const MAX_READ: u64 = 2 * MAX_FILE;

/// Messages that are lent, that is, on their way to a program. The set is not stored, so a restart ends all loans.
pub(super) type LentIds = Arc<Mutex<BTreeSet<Uuid>>>;

/// Entries that were written to the file and not yet applied in memory.
#[derive(Debug)]
pub(super) struct PendingWrite {
    entries: Vec<(Head, FrameRange)>,
    bytes: u64,
}

/// Messages and results that a member has received; they are not delivered again.
#[derive(Debug, Default)]
pub struct Taken {
    pub messages: Vec<Message>,
    pub results: Vec<TaskResult>,
    pub results_left: usize,
    pub pending: usize,
}

/// A task that is about to run.
#[derive(Debug)]
pub struct Begun {
    pub message_id: Uuid,
    pub assignment: Assignment,
}

#[derive(Debug)]
pub struct Inbox {
    log: Log,
    contents: Contents,
    /// Whether the file has been read.
    loaded: bool,
    /// Its team is gone.
    closed: bool,
    /// Whether a copy of its damaged file was kept. One is enough: the damage stays in the file until its entries are
    /// removed.
    kept_aside: bool,
    lent: LentIds,
}

impl Inbox {
    /// An inbox of a file, without a daemon.
    pub fn at(path: PathBuf) -> Self {
        Self::new(path, LentIds::default())
    }

    pub(super) fn new(path: PathBuf, lent: LentIds) -> Self {
        Self {
            log: Log::new(path),
            contents: Contents::default(),
            loaded: false,
            closed: false,
            kept_aside: false,
            lent,
        }
    }

    fn failed(&self, source: io::Error) -> MailStoreError {
        MailStoreError::io(self.log.path(), source)
    }

    /// Reads the file, once.
    pub(super) fn load(&mut self) -> Result<(), MailStoreError> {
        if self.closed {
            return Err(MailStoreError::Closed);
        }
        if !self.loaded {
            self.contents = self.read_file().map_err(|source| self.failed(source))?;
            self.loaded = true;
        }
        Ok(())
    }

    fn read_file(&mut self) -> io::Result<Contents> {
        let (contents, end) = match self.log.read_all(MAX_READ)? {
            None => return Ok(Contents::default()),
            Some(FileBytes::All(bytes)) => {
                let (contents, end, whole) = replay(&bytes);
                if !whole {
                    self.log.keep_aside("a frame is damaged")?;
                }
                (contents, end)
            }
            Some(FileBytes::TooMany) => {
                self.log.keep_aside("it is larger than an inbox may be")?;
                (Contents::default(), 0)
            }
        };
        self.log.begin_at(end)?;
        Ok(contents)
    }

    /// Closes the inbox and deletes its file.
    pub(super) fn close(&mut self) -> Result<(), MailStoreError> {
        self.closed = true;
        self.log.remove().map_err(|source| self.failed(source))
    }

    /// Tasks that wait or run, as far as the file has been read.
    pub fn pending(&self) -> &[Task] {
        self.contents.tasks.pending()
    }

    /// Whether the last finished task succeeded, as far as the file tells.
    pub(super) fn last_ended(&self) -> Option<bool> {
        self.contents.last
    }

    pub(super) fn knows(&self, id: &Uuid) -> bool {
        self.contents.knows(id)
    }

    /// Writes a message, after an entry for the messages that it displaces, and returns their number.
    pub(super) fn write_message(
        &mut self,
        message: &Message,
    ) -> Result<(PendingWrite, usize), MailStoreError> {
        self.load()?;
        let bytes = Entry::Message(message).encode().ok_or(MailStoreError::TooLong)?.1.len();
        let letter = Letter { id: message.message_id, from: message.from.clone(), bytes };
        let displaced = self.contents.mail.displaced_by(&letter);
        let mut entries = Vec::new();
        if !displaced.is_empty() {
            entries.push(Entry::Gone(&displaced));
        }
        entries.push(Entry::Message(message));
        Ok((self.write(&entries)?, displaced.len()))
    }

    /// Adds a message and returns how many others it displaced.
    pub fn put(&mut self, message: &Message) -> Result<usize, MailStoreError> {
        let (written, displaced) = self.write_message(message)?;
        self.commit(written);
        Ok(displaced)
    }

    /// Checks whether a task fits, or the result of one that cannot be parsed.
    pub(super) fn admit(
        &mut self,
        who: &str,
        entry: &Entry<'_>,
    ) -> Result<Result<(), MailError>, MailStoreError> {
        self.load()?;
        let bytes = entry.encode().ok_or(MailStoreError::TooLong)?.1.len();
        Ok(self.contents.tasks.admit(who, bytes))
    }

    /// Appends entries and syncs them. [`Self::commit`] then applies them, [`Self::undo`] takes them back.
    pub(super) fn write(&mut self, entries: &[Entry<'_>]) -> Result<PendingWrite, MailStoreError> {
        self.load()?;
        let grows = entries.iter().any(|entry| matches!(entry, Entry::Message(_) | Entry::Task { .. }));
        if grows && self.log.len() > MAX_FILE {
            return Err(MailStoreError::Full { path: self.log.path().into() });
        }
        let (mut bytes, mut written) = (Vec::new(), Vec::with_capacity(entries.len()));
        for entry in entries {
            let (head, frame) = entry.encode().ok_or(MailStoreError::TooLong)?;
            let at = self.log.next_offset() + bytes.len() as u64;
            written.push((head, FrameRange { at, len: frame.len() }));
            bytes.extend_from_slice(&frame);
        }
        self.log.append(&bytes).map_err(|source| self.failed(source))?;
        Ok(PendingWrite { entries: written, bytes: bytes.len() as u64 })
    }

    pub(super) fn commit(&mut self, written: PendingWrite) {
        self.log.accept(written.bytes);
        for (head, range) in written.entries {
            self.contents.apply(head, range);
        }
        self.tidy();
    }

    pub(super) fn undo(&mut self, _written: PendingWrite) {
        self.log.cut_back();
    }

    pub(super) fn enter(&mut self, entries: &[Entry<'_>]) -> Result<(), MailStoreError> {
        let written = self.write(entries)?;
        self.commit(written);
        Ok(())
    }

    /// Takes the oldest messages and results, up to `limit` of each.
    pub fn take(&mut self, limit: usize) -> Result<Taken, MailStoreError> {
        self.load()?;
        let mail = self.free_mail(limit);
        let results = self.contents.tasks.results().take(limit);
        let ended: Vec<Uuid> = results.map(|result| result.message_id).collect();
        let messages = self.read_each(&mail, Head::into_message)?;
        let results = self.read_each(&ended, Head::into_result)?;
        self.remove(&[mail, ended].concat())?;
        let results_left = self.contents.tasks.results().len();
        Ok(Taken { messages, results, results_left, pending: self.pending().len() })
    }

    /// Lends all messages that are not lent already: returns copies. The messages stay until they are removed.
    pub fn lend(&mut self) -> Result<Vec<Message>, MailStoreError> {
        self.load()?;
        let ids = self.free_mail(usize::MAX);
        let messages = self.read_each(&ids, Head::into_message)?;
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.extend(messages.iter().map(|message| message.message_id));
        drop(lent);
        Ok(messages)
    }

    fn free_mail(&self, limit: usize) -> Vec<Uuid> {
        self.contents.mail.first(limit, &self.lent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes messages and results. Ids that are not there any more are ignored.
    pub(crate) fn remove(&mut self, ids: &[Uuid]) -> Result<(), MailStoreError> {
        self.load()?;
        if ids.iter().all(|id| !self.knows(id)) { Ok(()) } else { self.enter(&[Entry::Gone(ids)]) }
    }

    /// Records that the next task begins and returns it. `None` if no task waits, or the VM runs enough of them.
    pub fn begin(&mut self) -> Result<Option<Begun>, MailStoreError> {
        self.load()?;
        while let Some(next) = self.contents.tasks.next() {
            let (message_id, task_id) = (next.message_id, next.task_id.clone());
            // Read first: after the entry its position is forgotten.
            if let Some(assignment) = self.read_each(&[message_id], Head::into_assignment)?.pop() {
                self.enter(&[Entry::Starting { message_id, task_id: &task_id }])?;
                return Ok(Some(Begun { message_id, assignment }));
            }
            let lost = Outcome::failed("the inbox file is damaged, so the command is lost");
            self.end(message_id, lost)?;
        }
        Ok(None)
    }

    /// Records that the VM has started a task.
    pub(crate) fn task_runs(&mut self, message_id: Uuid, job: &UnderWay) -> Result<(), MailStoreError> {
        self.load()?;
        let Some(task_id) = self.task_id(&message_id) else { return Ok(()) };
        self.enter(&[Entry::Running { message_id, task_id: &task_id, job }])
    }

    /// Records the result of a task. False if there is no such task.
    pub fn end(&mut self, message_id: Uuid, outcome: Outcome) -> Result<bool, MailStoreError> {
        self.load()?;
        let Some(task_id) = self.task_id(&message_id) else { return Ok(false) };
        self.enter(&[Entry::Result(&TaskResult::new(task_id, message_id, outcome))])?;
        Ok(true)
    }

    fn task_id(&self, message_id: &Uuid) -> Option<String> {
        self.pending().iter().find(|task| task.message_id == *message_id).map(|task| task.task_id.clone())
    }

    /// Reads the entries of some ids. Damaged ones are skipped, and a copy of the file is kept.
    fn read_each<T>(
        &mut self,
        ids: &[Uuid],
        decode: impl Fn(Head, &[u8]) -> Option<T>,
    ) -> Result<Vec<T>, MailStoreError> {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(range) = self.contents.frame_of(id) else { continue };
            let bytes = self.log.frame_at(range).map_err(|source| self.failed(source))?;
            let one = match frame::next(&bytes) {
                Next::Frame { head, body, .. } => Head::parse(head).and_then(|head| decode(head, body)),
                Next::End | Next::Torn | Next::Damaged => None,
            };
            match one {
                Some(one) => found.push(one),
                None if self.kept_aside => {}
                None => {
                    let kept = self.log.keep_aside("an entry has changed on disk");
                    kept.map_err(|source| self.failed(source))?;
                    self.kept_aside = true;
                }
            }
        }
        Ok(found)
    }

    /// Frees the space of obsolete entries. A failure is only logged, because nothing is lost by it.
    fn tidy(&mut self) {
        let live = self.contents.live_bytes();
        let tidied = if self.contents.is_empty() {
            self.log.clear()
        } else if self.log.len().saturating_sub(live) > live / 2 + SLACK {
            self.compact()
        } else {
            Ok(())
        };
        if let Err(error) = tidied {
            tracing::warn!(file = %self.log.path().display(), %error, "cannot compact an inbox");
        }
    }

    /// Rewrites the file with only the entries that are still needed.
    fn compact(&mut self) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        let letters: Vec<Uuid> = self.contents.mail.iter().map(|letter| letter.id).collect();
        let results: Vec<Uuid> = self.contents.tasks.results().map(|result| result.message_id).collect();
        for id in letters {
            self.copy_frame(&id, &mut bytes)?;
        }
        for task in self.contents.tasks.pending().to_vec() {
            let (message_id, task_id) = (task.message_id, task.task_id.as_str());
            let begun = match &task.step {
                TaskStep::Waiting { .. } => {
                    self.copy_frame(&message_id, &mut bytes)?;
                    continue;
                }
                TaskStep::Starting => Entry::Starting { message_id, task_id },
                TaskStep::Running(job) => Entry::Running { message_id, task_id, job },
            };
            let (_, frame) = begun.encode().ok_or_else(|| io::Error::other("a task is too long"))?;
            bytes.extend_from_slice(&frame);
        }
        for id in results {
            self.copy_frame(&id, &mut bytes)?;
        }
        let (contents, end, whole) = replay(&bytes);
        if !whole || end != bytes.len() as u64 {
            return Err(io::Error::other("an entry has changed on disk"));
        }
        self.log.replace(&bytes)?;
        let last = self.contents.last;
        self.contents = contents;
        self.contents.last = last;
        Ok(())
    }

    fn copy_frame(&mut self, id: &Uuid, bytes: &mut Vec<u8>) -> io::Result<()> {
        if let Some(range) = self.contents.frame_of(id) {
            bytes.extend_from_slice(&self.log.frame_at(range)?);
        }
        Ok(())
    }
}

/// Reads a file's bytes: the contents, the offset at which valid entries end, and whether the rest (if any) is only a
/// truncated entry rather than damage.
fn replay(bytes: &[u8]) -> (Contents, u64, bool) {
    let mut contents = Contents::default();
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        return (contents, 0, MAGIC.starts_with(bytes));
    };
    let mut at = MAGIC.len() as u64;
    loop {
        match frame::next(rest) {
            Next::End | Next::Torn => return (contents, at, true),
            Next::Damaged => return (contents, at, false),
            Next::Frame { head, len, .. } => {
                let Some(head) = Head::parse(head) else { return (contents, at, false) };
                contents.apply(head, FrameRange { at, len });
                at += len as u64;
                rest = &rest[len..];
            }
        }
    }
}

/// Counts the messages and tasks in a file. Changes nothing.
pub(super) fn counts(path: &Path) -> io::Result<(usize, usize)> {
    match read_all(path, MAX_READ)? {
        Some(FileBytes::All(bytes)) => {
            let (contents, ..) = replay(&bytes);
            Ok((contents.mail.len(), contents.tasks.pending().len()))
        }
        Some(FileBytes::TooMany) | None => Ok((0, 0)),
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
