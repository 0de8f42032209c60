//! Tasks of a member: the commands that it was given, and their results.
//!
//! ```text
//!  given ──▶ waiting ──▶ starting ──▶ running ──▶ result ── received ──▶ forgotten
//! ```
//!
//! This is only the index: which tasks and results there are, their steps and their sizes. The commands and results
//! themselves are in the inbox.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{AgentStatus, MAX_INBOX_BYTES, MailError, Member};

/// The most tasks that one VM runs at the same time; the others wait.
pub const TASKS_AT_ONCE: usize = 4;

/// The most tasks of one member whose results were not received yet, finished or not.
pub const MAX_TASKS: usize = 100;

/// The most stored bytes of all commands that wait for one member.
pub const MAX_TASK_BYTES: usize = MAX_INBOX_BYTES;

/// The most bytes of a failure's reason in a result, from the tool contract. A reason may repeat parts of the request.
const MAX_STDERR: usize = 2048;

/// The task id in the result of a message that cannot be understood.
const UNKNOWN: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The message that assigned it.
    pub message_id: Uuid,
    pub task_id: String,
    pub step: TaskStep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStep {
    Waiting {
        /// Its size in the store.
        bytes: usize,
    },
    /// Stored before the agent is asked to start it, so that a crash in between never makes it run twice.
    Starting,
    Running(UnderWay),
}

/// The job of a running task, by which a later daemon finds it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    pub job: u64,
    /// The run of the VM that the job belongs to.
    #[serde(rename = "machine")]
    pub vm: String,
    pub deadline: Timestamp,
}

/// The end of a task, without its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub exit_code: i32,
    pub stdout: String,
    pub stderr: String,
    pub elapsed_secs: u64,
}

impl Outcome {
    /// The outcome of a task that could not be started or not be finished.
    pub fn failed(reason: impl ToString) -> Self {
        let mut stderr = reason.to_string();
        stderr.truncate(stderr.floor_char_boundary(MAX_STDERR));
        Self { exit_code: -1, stderr, ..Self::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    pub task_id: String,
    pub success: bool,
    pub exit_code: i32,
    pub stdout: String,
    pub stderr: String,
    pub elapsed_secs: u64,
    pub source_message_id: Uuid,
}

impl TaskResult {
    pub fn new(task_id: String, source_message_id: Uuid, outcome: Outcome) -> Self {
        let Outcome { exit_code, stdout, stderr, elapsed_secs } = outcome;
        Self { task_id, success: exit_code == 0, exit_code, stdout, stderr, elapsed_secs, source_message_id }
    }

    /// The result of a task that cannot be understood.
    pub fn not_understood(source_message_id: Uuid, reason: impl ToString) -> Self {
        let outcome = Outcome { exit_code: -2, ..Outcome::failed(reason) };
        Self::new(UNKNOWN.to_owned(), source_message_id, outcome)
    }
}

/// A result that waits, without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultMark {
    pub message_id: Uuid,
    pub bytes: usize,
}

/// The tasks and results of one member, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    pending: Vec<Task>,
    results: VecDeque<ResultMark>,
}

impl Tasks {
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.results.is_empty()
    }

    pub fn pending(&self) -> &[Task] {
        &self.pending
    }

    pub fn results(&self) -> impl ExactSizeIterator<Item = &ResultMark> {
        self.results.iter()
    }

    /// Succeeds if one more task of this size fits.
    pub fn admit(&self, who: &str, bytes: usize) -> Result<(), MailError> {
        let waiting = self.pending.iter().map(|task| match task.step {
            TaskStep::Waiting { bytes } => bytes,
            TaskStep::Starting | TaskStep::Running(_) => 0,
        });
        let full = self.pending.len() + self.results.len() >= MAX_TASKS;
        if full || waiting.sum::<usize>().saturating_add(bytes) > MAX_TASK_BYTES {
            return Err(MailError::TooManyTasks { who: who.to_owned() });
        }
        Ok(())
    }

    pub fn give(&mut self, message_id: Uuid, task_id: String, bytes: usize) {
        self.pending.push(Task { message_id, task_id, step: TaskStep::Waiting { bytes } });
    }

    /// The task to start next. `None` if none waits or [`TASKS_AT_ONCE`] run already.
    pub fn next(&self) -> Option<&Task> {
        let waits = |task: &&Task| matches!(task.step, TaskStep::Waiting { .. });
        let begun = self.pending.iter().filter(|task| !waits(task)).count();
        if begun >= TASKS_AT_ONCE { None } else { self.pending.iter().find(waits) }
    }

    /// Sets the step of a task. A task that is not known is added.
    pub fn set_step(&mut self, message_id: Uuid, task_id: String, step: TaskStep) {
        match self.pending.iter_mut().find(|task| task.message_id == message_id) {
            Some(task) => task.step = step,
            None => self.pending.push(Task { message_id, task_id, step }),
        }
    }

    /// Adds the result of a task that has ended or could not be understood.
    pub fn end(&mut self, mark: ResultMark) {
        self.pending.retain(|task| task.message_id != mark.message_id);
        self.results.push_back(mark);
    }

    pub fn remove(&mut self, ids: &[Uuid]) {
        self.pending.retain(|task| !ids.contains(&task.message_id));
        self.results.retain(|result| !ids.contains(&result.message_id));
    }
}

impl Member {
    fn is_busy(&self) -> bool {
        self.on_board || self.pending_tasks > 0
    }

    /// Sets the number of open tasks and derives the member's status.
    pub fn set_pending_tasks(&mut self, count: usize, ended: Option<bool>) {
        self.pending_tasks = count;
        match (self.is_busy(), ended) {
            (true, _) => self.status = AgentStatus::Working,
            (false, Some(true)) => self.status = AgentStatus::Done,
            (false, Some(false)) => self.status = AgentStatus::Failed,
            (false, None) => {}
        }
    }

    /// Corrects the status after a start of the daemon, by the tasks in the inbox: the ledger may have been written
    /// before the last of them ended. `last` is the success of the last result.
    pub fn found_tasks(&mut self, count: usize, last: Option<bool>) {
        let worked = self.status == AgentStatus::Working;
        self.pending_tasks = count;
        match (self.is_busy(), worked) {
            (true, _) if self.status != AgentStatus::Initializing => self.status = AgentStatus::Working,
            (false, true) => {
                self.status = match last {
                    Some(true) => AgentStatus::Done,
                    Some(false) => AgentStatus::Failed,
                    None => AgentStatus::Ready,
                }
            }
            (true, _) | (false, false) => {}
        }
    }

    /// Sets whether it has claimed tasks of the board. Returns true if that changed.
    pub fn set_on_board(&mut self, on_board: bool) -> bool {
        let was = std::mem::replace(&mut self.on_board, on_board);
        match self.status {
            // It has no VM yet; `set_ready` derives the status once it has one.
            AgentStatus::Initializing => {}
            AgentStatus::Ready | AgentStatus::Working | AgentStatus::Done | AgentStatus::Failed => {
                if was != on_board {
                    self.set_ready();
                }
            }
        }
        was != on_board
    }

    /// Sets the status of a member whose VM runs: working if it has tasks, else ready.
    pub fn set_ready(&mut self) {
        self.status = if self.is_busy() { AgentStatus::Working } else { AgentStatus::Ready };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(tasks: &mut Tasks, number: usize) -> Uuid {
        let id = Uuid::new_v4();
        tasks.give(id, format!("t{number}"), 100);
        id
    }

    fn begin(tasks: &mut Tasks) -> Option<Uuid> {
        let next = tasks.next().map(|task| (task.message_id, task.task_id.clone()))?;
        tasks.set_step(next.0, next.1, TaskStep::Starting);
        Some(next.0)
    }

    #[test]
    fn at_most_four_tasks_run_at_once() {
        let mut tasks = Tasks::default();
        let ids: Vec<_> = (0..6).map(|number| give(&mut tasks, number)).collect();
        let begun: Vec<_> = std::iter::from_fn(|| begin(&mut tasks)).collect();
        assert_eq!(begun, ids[..4]);
        tasks.end(ResultMark { message_id: ids[2], bytes: 10 });
        assert_eq!(begin(&mut tasks), Some(ids[4]));
        assert_eq!(begin(&mut tasks), None);
        assert_eq!((tasks.results().len(), tasks.pending().len()), (1, 5));
        tasks.remove(&[ids[2]]);
        assert_eq!((tasks.results().len(), tasks.pending().len()), (0, 5));
    }

    #[test]
    fn last_task_result_sets_member_status() {
        let mut member = Member::for_tests("ann");
        member.set_pending_tasks(2, None);
        assert_eq!(member.status, AgentStatus::Working);
        member.set_pending_tasks(1, Some(true));
        assert_eq!(member.status, AgentStatus::Working);
        member.set_pending_tasks(0, Some(false));
        assert_eq!(member.status, AgentStatus::Failed);
        member.set_pending_tasks(0, Some(true));
        assert_eq!(member.status, AgentStatus::Done);
    }

    #[test]
    fn member_with_board_tasks_is_working() {
        let mut member = Member::for_tests("ann");
        assert!(member.set_on_board(true) && !member.set_on_board(true), "only once");
        assert_eq!(member.status, AgentStatus::Working);
        member.set_pending_tasks(1, None);
        member.set_pending_tasks(0, Some(true));
        assert_eq!(member.status, AgentStatus::Working, "the board's is not done");
        assert!(member.set_on_board(false));
        assert_eq!(member.status, AgentStatus::Ready);
        member.set_pending_tasks(1, None);
        member.set_on_board(true);
        member.set_on_board(false);
        assert_eq!(member.status, AgentStatus::Working, "it runs still");
        member.set_pending_tasks(0, Some(true));
        assert!(!member.set_on_board(false));
        assert_eq!(member.status, AgentStatus::Done, "how the last task ended stays");
    }

    #[test]
    fn initializing_member_is_not_working() {
        let mut member = Member { status: AgentStatus::Initializing, ..Member::for_tests("ann") };
        assert!(member.set_on_board(true));
        assert_eq!(member.status, AgentStatus::Initializing);
        member.set_ready();
        assert_eq!(member.status, AgentStatus::Working);
    }

    #[test]
    fn found_tasks_correct_a_stale_status() {
        let found = |status, count, last| {
            let mut member = Member { status, ..Member::for_tests("ann") };
            member.found_tasks(count, last);
            member.status
        };
        assert_eq!(found(AgentStatus::Ready, 1, None), AgentStatus::Working);
        assert_eq!(found(AgentStatus::Working, 0, Some(false)), AgentStatus::Failed);
        assert_eq!(found(AgentStatus::Working, 0, None), AgentStatus::Ready);
        assert_eq!(found(AgentStatus::Done, 0, None), AgentStatus::Done);
    }

    #[test]
    fn tasks_of_one_member_are_limited() {
        let mut tasks = Tasks::default();
        for number in 0..MAX_TASKS {
            assert!(tasks.admit("ann", 10).is_ok());
            give(&mut tasks, number);
        }
        assert!(tasks.admit("ann", 10).unwrap_err().to_string().contains("ann"));
        assert!(Tasks::default().admit("ann", MAX_TASK_BYTES + 1).is_err());
    }
}
