//! Commands that a member was given, and what came of them.
//!
//! ```text
//!  given ──▶ waiting ──▶ starting ──▶ running ──▶ result ── received ──▶ forgotten
//! ```
//!
//! Commands and results are where they are stored; here is which there are, how far they are and how many bytes they
//! take.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{AgentStatus, MAX_INBOX_BYTES, MailError, Member};

/// Tasks that one machine carries out at the same time; the others wait.
pub const TASKS_AT_ONCE: usize = 4;

/// Tasks of one member that are not received yet, finished or not.
pub const MAX_TASKS: usize = 100;

/// Bytes that the commands that wait for one member take where they are stored.
pub const MAX_TASK_BYTES: usize = MAX_INBOX_BYTES;

/// Bytes of what a result says about errors, from the tool contract. Reasons may repeat what was asked for.
const MAX_STDERR: usize = 2048;

/// What the task of a message is called that cannot be understood.
const UNKNOWN: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The message that it came with.
    pub message_id: Uuid,
    pub task_id: String,
    pub step: TaskStep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStep {
    Waiting {
        /// What it takes where it is stored.
        bytes: usize,
    },
    /// Written down before the machine is asked, so that a crash in between never has it run twice.
    Starting,
    Running(UnderWay),
}

/// How a task that runs is found again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    pub job: u64,
    /// Which run of the machine the job belongs to.
    pub machine: String,
    pub deadline: Timestamp,
}

/// How a task ended, whatever it was called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub exit_code: i32,
    pub stdout: String,
    pub stderr: String,
    pub elapsed_secs: u64,
}

impl Outcome {
    /// It could not be carried out, or not to its end.
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

/// In the order in which they were given.
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

    /// Whether one more fits.
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

    /// The task to start next, unless the machine has enough to do.
    pub fn next(&self) -> Option<&Task> {
        let waits = |task: &&Task| matches!(task.step, TaskStep::Waiting { .. });
        let begun = self.pending.iter().filter(|task| !waits(task)).count();
        if begun >= TASKS_AT_ONCE { None } else { self.pending.iter().find(waits) }
    }

    /// A task has come to another step. One that is not known is entered.
    pub fn set_step(&mut self, message_id: Uuid, task_id: String, step: TaskStep) {
        match self.pending.iter_mut().find(|task| task.message_id == message_id) {
            Some(task) => task.step = step,
            None => self.pending.push(Task { message_id, task_id, step }),
        }
    }

    /// A task has ended, or could not be understood.
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

    /// What was found of its tasks at the start. The ledger may have been written before the last of them ended.
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

    /// Whether it has tasks of the board in hand. True if that was news.
    pub fn set_on_board(&mut self, on_board: bool) -> bool {
        let was = std::mem::replace(&mut self.on_board, on_board);
        match self.status {
            // It has no machine yet; what it is then is found out when it has.
            AgentStatus::Initializing => {}
            AgentStatus::Ready | AgentStatus::Working | AgentStatus::Done | AgentStatus::Failed => {
                if was != on_board {
                    self.set_ready();
                }
            }
        }
        was != on_board
    }

    /// Its machine is there and has done nothing, unless it has something in hand.
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
    fn four_tasks_begin_and_the_fifth_when_one_has_ended() {
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
    fn how_the_last_task_ended_is_how_the_member_is() {
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
    fn whoever_has_a_task_of_the_board_works_until_it_is_done() {
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
    fn a_member_whose_machine_is_being_made_does_not_work_yet() {
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
    fn a_member_takes_only_so_many() {
        let mut tasks = Tasks::default();
        for number in 0..MAX_TASKS {
            assert!(tasks.admit("ann", 10).is_ok());
            give(&mut tasks, number);
        }
        assert!(tasks.admit("ann", 10).unwrap_err().to_string().contains("ann"));
        assert!(Tasks::default().admit("ann", MAX_TASK_BYTES + 1).is_err());
    }
}
