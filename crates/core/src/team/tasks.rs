//! Commands that a member was given, and what came of them.
//!
//! ```text
//!  given ──▶ waiting ──▶ starting ──▶ running ──▶ result ── received ──▶ forgotten
//! ```
//!
//! What waits is here with its command; what runs is the machine's, and only how to find it again is here.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{AgentStatus, Assignment, MAX_INBOX_BYTES, MailError, Member};

/// Tasks that one machine carries out at the same time; the others wait.
pub const TASKS_AT_ONCE: usize = 4;

/// Tasks of one member that are not received yet, finished or not.
pub const MAX_TASKS: usize = 100;

/// What the task of a message is called that cannot be understood.
const UNKNOWN: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The message that it came with.
    pub message_id: Uuid,
    pub task_id: String,
    #[serde(flatten)]
    pub step: TaskStep,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum TaskStep {
    Waiting {
        assignment: Assignment,
    },
    /// Written down before the machine is asked, so that a crash in between never has it run twice.
    Starting,
    Running {
        job: u64,
        /// Which run of the machine the job belongs to.
        machine: String,
        deadline: Timestamp,
    },
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
        Self { exit_code: -1, stderr: reason.to_string(), ..Self::default() }
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
    fn new(task_id: String, source_message_id: Uuid, outcome: Outcome) -> Self {
        let Outcome { exit_code, stdout, stderr, elapsed_secs } = outcome;
        Self { task_id, success: exit_code == 0, exit_code, stdout, stderr, elapsed_secs, source_message_id }
    }
}

/// In the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tasks {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending: Vec<Task>,
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    results: VecDeque<TaskResult>,
}

impl Tasks {
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.results.is_empty()
    }

    pub fn pending(&self) -> &[Task] {
        &self.pending
    }

    pub fn results_left(&self) -> usize {
        self.results.len()
    }

    /// Removes what it returns.
    pub fn take_results(&mut self, limit: usize) -> Vec<TaskResult> {
        let count = limit.min(self.results.len());
        self.results.drain(..count).collect()
    }

    /// Puts back what was taken and could not be handed over.
    pub fn give_back(&mut self, results: Vec<TaskResult>) {
        results.into_iter().rev().for_each(|result| self.results.push_front(result));
    }

    pub(super) fn retract(&mut self, message_id: &Uuid) {
        self.pending.retain(|task| task.message_id != *message_id);
        self.results.retain(|result| result.source_message_id != *message_id);
    }

    /// Whether one more fits.
    pub(super) fn admit(&self, who: &str, bytes: usize) -> Result<(), MailError> {
        let waiting = self.pending.iter().map(|task| match &task.step {
            TaskStep::Waiting { assignment } => assignment.size(),
            TaskStep::Starting | TaskStep::Running { .. } => 0,
        });
        let full = self.pending.len() + self.results.len() >= MAX_TASKS;
        if full || waiting.sum::<usize>().saturating_add(bytes) > MAX_INBOX_BYTES {
            return Err(MailError::TooManyTasks { who: who.to_owned() });
        }
        Ok(())
    }

    /// Takes a message's task. One that cannot be understood has its result at once.
    pub(super) fn give(&mut self, message_id: Uuid, content: &str) {
        match Assignment::parse(content) {
            Ok(assignment) => self.pending.push(Task {
                message_id,
                task_id: assignment.task_id.clone(),
                step: TaskStep::Waiting { assignment },
            }),
            Err(error) => {
                let outcome = Outcome { exit_code: -2, ..Outcome::failed(error) };
                self.results.push_back(TaskResult::new(UNKNOWN.to_owned(), message_id, outcome));
            }
        }
    }
}

impl Member {
    /// The task to start next, unless the machine has enough to do.
    pub fn begin_task(&mut self) -> Option<(Uuid, Assignment)> {
        let waits = |task: &Task| matches!(task.step, TaskStep::Waiting { .. });
        let begun = self.tasks.pending.iter().filter(|task| !waits(task)).count();
        if begun >= TASKS_AT_ONCE {
            return None;
        }
        let next = self.tasks.pending.iter_mut().find(|task| waits(task))?;
        match std::mem::replace(&mut next.step, TaskStep::Starting) {
            TaskStep::Waiting { assignment } => {
                self.status = AgentStatus::Working;
                Some((next.message_id, assignment))
            }
            TaskStep::Starting | TaskStep::Running { .. } => None,
        }
    }

    /// The machine has taken a task up.
    pub fn task_runs(&mut self, message_id: &Uuid, job: u64, machine: String, deadline: Timestamp) {
        if let Some(task) = self.tasks.pending.iter_mut().find(|task| task.message_id == *message_id) {
            task.step = TaskStep::Running { job, machine, deadline };
        }
    }

    /// A task has ended. False if it is not one of this member.
    pub fn end_task(&mut self, message_id: &Uuid, outcome: Outcome) -> bool {
        let Some(at) = self.tasks.pending.iter().position(|task| task.message_id == *message_id) else {
            return false;
        };
        let task = self.tasks.pending.remove(at);
        let result = TaskResult::new(task.task_id, task.message_id, outcome);
        self.status = match (self.is_busy(), result.success) {
            (true, _) => AgentStatus::Working,
            (false, true) => AgentStatus::Done,
            (false, false) => AgentStatus::Failed,
        };
        self.tasks.results.push_back(result);
        true
    }

    fn is_busy(&self) -> bool {
        self.on_board || !self.tasks.pending.is_empty()
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
    use crate::names::WorkspaceName;
    use crate::team::{Mailbox, RoleName};

    fn member() -> Member {
        Member {
            name: RoleName::parse("ann").unwrap(),
            role: String::new(),
            skills: Vec::new(),
            description: None,
            workspace: WorkspaceName::parse("w").unwrap(),
            workspace_id: None,
            status: AgentStatus::Ready,
            on_board: false,
            mail: Mailbox::default(),
            tasks: Tasks::default(),
        }
    }

    fn give(member: &mut Member, task: usize) -> Uuid {
        let id = Uuid::new_v4();
        member.tasks.give(id, &format!(r#"{{"task_id": "t{task}", "command": "true"}}"#));
        id
    }

    #[test]
    fn four_tasks_begin_and_the_fifth_when_one_has_ended() {
        let mut member = member();
        let ids: Vec<_> = (0..6).map(|task| give(&mut member, task)).collect();
        let mut begun = Vec::new();
        while let Some((id, _)) = member.begin_task() {
            member.task_runs(&id, 1, "m".to_owned(), Timestamp::UNIX_EPOCH);
            begun.push(id);
        }
        assert_eq!(begun, ids[..4]);
        assert_eq!(member.status, AgentStatus::Working);
        assert!(member.end_task(&ids[2], Outcome::default()));
        assert!(!member.end_task(&ids[2], Outcome::default()), "only once");
        assert_eq!(member.begin_task().unwrap().0, ids[4]);
        assert_eq!(member.begin_task(), None);
        let results = member.tasks.take_results(10);
        assert_eq!((results.len(), results[0].task_id.as_str(), results[0].success), (1, "t2", true));
        assert_eq!((member.tasks.take_results(10).len(), member.tasks.pending().len()), (0, 5));
    }

    #[test]
    fn how_the_last_task_ended_is_how_the_member_is() {
        let mut member = member();
        let (one, two) = (give(&mut member, 1), give(&mut member, 2));
        while member.begin_task().is_some() {}
        member.end_task(&one, Outcome::default());
        assert_eq!(member.status, AgentStatus::Working);
        member.end_task(&two, Outcome::failed("no"));
        assert_eq!(member.status, AgentStatus::Failed);
        let three = give(&mut member, 3);
        member.begin_task();
        member.end_task(&three, Outcome::default());
        assert_eq!(member.status, AgentStatus::Done);
    }

    #[test]
    fn whoever_has_a_task_of_the_board_works_until_it_is_done() {
        let mut member = member();
        assert!(member.set_on_board(true) && !member.set_on_board(true), "only once");
        assert_eq!(member.status, AgentStatus::Working);
        let task = give(&mut member, 1);
        member.begin_task();
        member.end_task(&task, Outcome::default());
        assert_eq!(member.status, AgentStatus::Working, "the board's is not done");
        assert!(member.set_on_board(false));
        assert_eq!(member.status, AgentStatus::Ready);
        let task = give(&mut member, 2);
        member.begin_task();
        member.set_on_board(true);
        member.set_on_board(false);
        assert_eq!(member.status, AgentStatus::Working, "it runs still");
        member.end_task(&task, Outcome::default());
        assert!(!member.set_on_board(false));
        assert_eq!(member.status, AgentStatus::Done, "how the last task ended stays");
    }

    #[test]
    fn a_member_whose_machine_is_being_made_does_not_work_yet() {
        let mut member = Member { status: AgentStatus::Initializing, ..member() };
        assert!(member.set_on_board(true));
        assert_eq!(member.status, AgentStatus::Initializing);
        member.set_ready();
        assert_eq!(member.status, AgentStatus::Working);
    }

    #[test]
    fn what_cannot_be_understood_has_a_result_at_once() {
        let mut member = member();
        let id = Uuid::new_v4();
        member.tasks.give(id, "rm -rf");
        let result = member.tasks.take_results(1).remove(0);
        assert_eq!((result.task_id.as_str(), result.exit_code, result.success), ("unknown", -2, false));
        assert_eq!(result.source_message_id, id);
        assert!(result.stderr.contains("JSON"), "{result:?}");
    }

    #[test]
    fn what_runs_is_found_again_and_a_command_is_kept_only_while_it_waits() {
        let mut member = member();
        let first = give(&mut member, 1);
        give(&mut member, 2);
        member.begin_task();
        member.task_runs(&first, 7, "m".to_owned(), Timestamp::UNIX_EPOCH);
        let text = serde_json::to_string(&member).unwrap();
        assert_eq!(serde_json::from_str::<Member>(&text).unwrap(), member);
        assert_eq!(text.matches("command").count(), 1, "{text}");
    }

    #[test]
    fn a_member_takes_only_so_many() {
        let mut member = member();
        for task in 0..MAX_TASKS {
            assert!(member.tasks.admit("ann", 10).is_ok());
            give(&mut member, task);
        }
        assert!(member.tasks.admit("ann", 10).unwrap_err().to_string().contains("ann"));
    }
}
