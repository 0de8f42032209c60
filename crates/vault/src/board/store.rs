//! The board on disk: every change holds the lock of the tasks' folder and rewrites the index.

use jiff::Timestamp;
use rustix::fs::Dir;
use serde_json::Value;

use super::error::BoardError;
use super::id::TaskId;
use super::index;
use super::task::{NewTask, Status, Task};
use crate::error::VaultError;
use crate::frontmatter::{self, Change};
use crate::locked::LockedFolder;
use crate::notes::{Vault, borrowed_text};
use crate::path::FolderPath;
use crate::replace::{self, Edit};
use crate::root::{open_beneath, read_whole, regular};

const INDEX: &str = "INDEX.md";

/// The longest name of a team.
const MAX_TEAM: usize = 64;

#[derive(Clone, Debug)]
pub struct Board {
    vault: Vault,
    team: String,
    folder: FolderPath,
}

/// All tasks of a board.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// Sorted by id.
    pub tasks: Vec<Task>,
    pub broken: Vec<Broken>,
}

/// A task whose note cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub id: TaskId,
    pub problem: String,
}

impl Board {
    pub fn of_team(vault: &Vault, team: &str) -> Result<Self, BoardError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let edges = team.starts_with('-') || team.ends_with('-');
        if team.is_empty() || team.len() > MAX_TEAM || edges || !team.chars().all(legal) {
            return Err(BoardError::TeamName { name: team.chars().take(80).collect() });
        }
        let folder = FolderPath::root().folder("teams").folder(team).folder("tasks");
        Ok(Self { vault: vault.clone(), team: team.to_owned(), folder })
    }

    /// Adds a pending task.
    pub fn create(&self, new: &NewTask) -> Result<Task, BoardError> {
        new.check()?;
        self.change(|folder| {
            let known = ids(folder)?;
            let id =
                TaskId::after(known.iter()).ok_or_else(|| BoardError::Full { team: self.team.clone() })?;
            let text = new.render(&now()).map_err(|problem| BoardError::NewTask { problem })?;
            let task = parse(&id, &text)?;
            // The name was free a moment ago; a file that another program has put there since is not overwritten.
            replace::edit(folder, &id.file(), |before| match before {
                None => Ok(Edit { content: Some(text.clone().into_bytes()), answer: () }),
                Some(_) => {
                    Err(BoardError::Vault(VaultError::Exists { path: folder.note(&id.file()).to_string() }))
                }
            })?;
            Ok(task)
        })
    }

    /// All tasks. A team without tasks has no folder.
    pub fn list(&self) -> Result<Tasks, BoardError> {
        match LockedFolder::existing(&self.vault.root()?, &self.folder) {
            Ok(folder) => read_all(&folder),
            Err(VaultError::NotFound { .. }) => Ok(Tasks::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Claims a pending task. `false` if it is already claimed.
    pub fn claim(&self, id: &TaskId, owner: &str) -> Result<bool, BoardError> {
        self.step(id, |task| match task.status {
            Status::Pending => Ok((status(Status::Claimed, Some(("owner", Some(owner.into())))), true)),
            Status::Claimed | Status::InProgress => Ok((Step::default(), false)),
            Status::Completed | Status::Failed => Err(wrong(task, "pending tasks", "claimed")),
        })
    }

    pub fn start(&self, id: &TaskId, owner: &str) -> Result<(), BoardError> {
        self.step(id, |task| {
            check_owner(task, owner)?;
            match task.status {
                Status::Claimed => Ok((status(Status::InProgress, None), ())),
                Status::Pending | Status::InProgress | Status::Completed | Status::Failed => {
                    Err(wrong(task, "claimed tasks", "started"))
                }
            }
        })
    }

    /// Completes a task, with an optional result.
    pub fn complete(&self, id: &TaskId, owner: &str, result: Option<&str>) -> Result<(), BoardError> {
        self.step(id, |task| {
            check_owner(task, owner)?;
            match task.status {
                Status::Claimed | Status::InProgress => {
                    Ok((status(Status::Completed, None).with("Result", result), ()))
                }
                Status::Pending | Status::Completed | Status::Failed => {
                    Err(wrong(task, "tasks that are claimed or in progress", "completed"))
                }
            }
        })
    }

    /// Marks a task as failed, whatever its status.
    pub fn fail(&self, id: &TaskId, reason: Option<&str>) -> Result<(), BoardError> {
        self.step(id, |_| Ok((status(Status::Failed, None).with("Failure", reason), ())))
    }

    /// Returns a claimed task to pending.
    pub fn release(&self, id: &TaskId, owner: &str) -> Result<(), BoardError> {
        self.step(id, |task| {
            check_owner(task, owner)?;
            match task.status {
                Status::Claimed => Ok((status(Status::Pending, Some(("owner", None))), ())),
                Status::Pending | Status::InProgress | Status::Completed | Status::Failed => {
                    Err(wrong(task, "claimed tasks", "released"))
                }
            }
        })
    }

    /// Moves one task from one status to the next.
    fn step<T>(
        &self,
        id: &TaskId,
        decide: impl Fn(&Task) -> Result<(Step, T), BoardError>,
    ) -> Result<T, BoardError> {
        let missing = || BoardError::NoTask { team: self.team.clone(), id: id.clone() };
        if !self.vault.has_folder(&self.folder)? {
            return Err(missing());
        }
        self.change(|folder| {
            replace::edit(folder, &id.file(), |before| {
                let text = borrowed_text(before.ok_or_else(missing)?, &folder.note(&id.file()))?;
                let task = parse(id, text)?;
                let (step, answer) = decide(&task)?;
                let content =
                    step.apply(text).map_err(|problem| BoardError::Broken { id: id.clone(), problem })?;
                Ok(Edit { content: content.map(String::into_bytes), answer })
            })
        })
    }

    /// Changes the tasks and then updates the index.
    fn change<T>(&self, work: impl FnOnce(&LockedFolder) -> Result<T, BoardError>) -> Result<T, BoardError> {
        self.vault.settings().check_folder(&self.folder)?;
        LockedFolder::made(&self.vault.root()?, &self.folder, |folder| {
            let answer = work(folder)?;
            let tasks = read_all(folder)?.tasks;
            let index = index::render(&self.team, &tasks, &now());
            // The change itself is done, so this is no error: the next change rewrites the index from all tasks.
            if let Err(error) = replace::overwrite(folder, INDEX, index.as_bytes()) {
                tracing::warn!(team = self.team, %error, "the index of a task board could not be written");
            }
            Ok(answer)
        })
    }
}

/// A change of a task's note. Empty by default.
#[derive(Debug, Default)]
struct Step {
    changes: Vec<Change<'static>>,
    section: Option<String>,
}

fn status(status: Status, more: Option<Change<'static>>) -> Step {
    let changes = [("status", Some(Value::from(status.as_str())))].into_iter().chain(more);
    Step { changes: changes.chain([("updated_at", Some(Value::from(now())))]).collect(), section: None }
}

impl Step {
    /// Adds a section at the end.
    fn with(mut self, heading: &str, text: Option<&str>) -> Self {
        self.section = text.map(|text| format!("## {heading}\n\n{}\n", text.trim_end()));
        self
    }

    fn apply(self, text: &str) -> Result<Option<String>, String> {
        if self.changes.is_empty() {
            return Ok(None);
        }
        let mut changed = frontmatter::change(text, &self.changes)?;
        if let Some(section) = self.section {
            let line_end = if changed.contains("\r\n") { "\r\n" } else { "\n" };
            let missing_end = if changed.ends_with('\n') { "" } else { line_end };
            changed = format!("{changed}{missing_end}{line_end}{}", section.replace('\n', line_end));
        }
        Ok(Some(changed))
    }
}

fn now() -> String {
    Timestamp::now().to_string()
}

fn wrong(task: &Task, wanted: &'static str, done: &'static str) -> BoardError {
    BoardError::WrongStatus { id: task.id.clone(), status: task.status, wanted, done }
}

/// Checks the owner of a task. A task without an owner passes; its status decides.
fn check_owner(task: &Task, caller: &str) -> Result<(), BoardError> {
    match &task.owner {
        Some(owner) if owner != caller => {
            let (id, owner, caller) = (task.id.clone(), owner.clone(), caller.to_owned());
            Err(BoardError::NotOwner { id, owner, caller })
        }
        Some(_) | None => Ok(()),
    }
}

fn parse(id: &TaskId, text: &str) -> Result<Task, BoardError> {
    Task::read(id, text).map_err(|problem| BoardError::Broken { id: id.clone(), problem })
}

fn ids(folder: &LockedFolder) -> Result<Vec<TaskId>, BoardError> {
    let failed = |errno| VaultError::at("list", folder.note(INDEX).folder())(errno);
    let entries = Dir::read_from(folder).map_err(failed)?;
    let mut ids = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|errno| VaultError::at("list", folder.note(INDEX).folder())(errno))?;
        ids.extend(entry.file_name().to_str().ok().and_then(TaskId::of_file));
    }
    ids.sort_unstable();
    Ok(ids)
}

fn read_all(folder: &LockedFolder) -> Result<Tasks, BoardError> {
    let mut all = Tasks::default();
    for id in ids(folder)? {
        match read_one(folder, &id) {
            Ok(task) => all.tasks.push(task),
            Err(problem) => all.broken.push(Broken { id, problem }),
        }
    }
    Ok(all)
}

fn read_one(folder: &LockedFolder, id: &TaskId) -> Result<Task, String> {
    let path = folder.note(&id.file());
    let read = || -> Result<Vec<u8>, VaultError> {
        let file = open_beneath(folder, &id.file(), rustix::fs::OFlags::empty());
        let file = regular(file.map_err(VaultError::at("open", &path))?, &path)?;
        read_whole(&file, &path)
    };
    let bytes = read().map_err(|error| error.to_string())?;
    Task::read(id, borrowed_text(&bytes, &path).map_err(|error| error.to_string())?)
}
