//! A task, read from its note.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::BoardError;
use super::id::TaskId;
use crate::frontmatter;

/// The longest title.
const MAX_TITLE: usize = 200;

/// The longest description, much more than a task needs.
const MAX_DESCRIPTION: usize = 256 * 1024;

const MAX_DEPENDENCIES: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Pending,
    Claimed,
    InProgress,
    Completed,
    Failed,
}

impl Status {
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Claimed, Self::InProgress, Self::Completed, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Claimed => "claimed",
            Self::InProgress => "inprogress",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        // People also write it with an underscore.
        let text = if text == "in_progress" { "inprogress" } else { text };
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Low,
    #[default]
    Medium,
    High,
    Critical,
}

impl Priority {
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// A task to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTask {
    pub title: String,
    pub description: String,
    pub priority: Priority,
    pub depends_on: Vec<TaskId>,
}

impl NewTask {
    pub(super) fn check(&self) -> Result<(), BoardError> {
        let refuse = |problem: String| Err(BoardError::NewTask { problem });
        let title = self.title.trim();
        if title.is_empty() {
            return refuse("its title is empty".to_owned());
        }
        if title.chars().count() > MAX_TITLE {
            return refuse(format!("its title is longer than {MAX_TITLE} characters"));
        }
        if title.chars().any(char::is_control) {
            return refuse("its title is more than one line".to_owned());
        }
        if self.description.len() > MAX_DESCRIPTION {
            return refuse(format!("its description has more than {MAX_DESCRIPTION} bytes"));
        }
        if self.depends_on.len() > MAX_DEPENDENCIES {
            return refuse(format!("it depends on more than {MAX_DEPENDENCIES} others"));
        }
        Ok(())
    }

    /// The text of the task's note.
    pub(super) fn render(&self, now: &str) -> Result<String, String> {
        let mut keys = vec![
            ("status", Some(Value::from(Status::Pending.as_str()))),
            ("priority", Some(Value::from(self.priority.as_str()))),
        ];
        if !self.depends_on.is_empty() {
            let ids: Vec<&str> = self.depends_on.iter().map(TaskId::as_str).collect();
            keys.push(("depends_on", Some(Value::from(ids))));
        }
        keys.push(("created_at", Some(Value::from(now))));
        keys.push(("updated_at", Some(Value::from(now))));
        let description = self.description.trim();
        let gap = if description.is_empty() { "" } else { "\n" };
        let end = if description.is_empty() { "" } else { "\n" };
        frontmatter::change(&format!("# {}\n{gap}{description}{end}", self.title.trim()), &keys)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    pub id: TaskId,
    pub title: String,
    pub description: String,
    pub status: Status,
    pub priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// As written: an invalid id is a dependency that is never completed.
    pub depends_on: Vec<String>,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
}

impl Task {
    /// Parses a task's note. The error says what is wrong with it.
    pub(super) fn read(id: &TaskId, text: &str) -> Result<Self, String> {
        let map = frontmatter::read(text)?.ok_or("it has no frontmatter")?;
        let body = frontmatter::split(text).map_or(text, |parts| parts.body);
        let (title, description) = heading(body).ok_or("it has no heading that is its title")?;
        Ok(Self {
            id: id.clone(),
            title,
            description,
            status: match word(&map, "status") {
                None => Status::Pending,
                Some(word) => Status::parse(word)
                    .ok_or_else(|| unknown("status", word, Status::ALL.map(Status::as_str)))?,
            },
            priority: match word(&map, "priority") {
                None => Priority::default(),
                Some(word) => Priority::ALL
                    .into_iter()
                    .find(|priority| priority.as_str() == word)
                    .ok_or_else(|| unknown("priority", word, Priority::ALL.map(Priority::as_str)))?,
            },
            owner: word(&map, "owner").filter(|owner| !owner.is_empty()).map(str::to_owned),
            depends_on: dependencies(&map),
            created_at: word(&map, "created_at").map(str::to_owned),
            updated_at: word(&map, "updated_at").map(str::to_owned),
        })
    }
}

fn word<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str)
}

fn unknown<const N: usize>(key: &str, word: &str, known: [&str; N]) -> String {
    let word: String = word.chars().take(40).collect();
    format!("its {key} is {word:?}, which is none of {}", known.join(", "))
}

fn dependencies(map: &Map<String, Value>) -> Vec<String> {
    match map.get("depends_on") {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    }
}

/// The first heading of level 1, and the rest of the text.
fn heading(body: &str) -> Option<(String, String)> {
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        if let Some(title) = line.strip_prefix("# ").map(str::trim).filter(|title| !title.is_empty()) {
            let rest = format!("{}{}", &body[..at], &body[at + line.len()..]);
            return Some((title.to_owned(), rest.trim().to_owned()));
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> TaskId {
        TaskId::parse(&format!("task-{number:03}")).unwrap()
    }

    #[test]
    fn new_task_reads_back() {
        let new = NewTask {
            title: " Build: the #thing ".to_owned(),
            description: "How\n\n## Steps\n".to_owned(),
            priority: Priority::High,
            depends_on: vec![id(1)],
        };
        let task = Task::read(&id(2), &new.render("2026-11-16T10:00:00Z").unwrap()).unwrap();
        assert_eq!(
            (task.title.as_str(), task.description.as_str()),
            ("Build: the #thing", "How\n\n## Steps")
        );
        assert_eq!((task.status, task.priority), (Status::Pending, Priority::High));
        assert_eq!(task.depends_on, ["task-001"]);
    }

    #[test]
    fn handwritten_tasks_are_read_leniently() {
        let read = |text: &str| Task::read(&id(1), text);
        assert_eq!(read("---\nstatus: in_progress\n---\ntext\n# T\n").unwrap().status, Status::InProgress);
        assert_eq!(read("---\r\nowner: x\r\n---\r\n# T\r\n").unwrap().title, "T");
        assert!(read("---\nstatus: done\n---\n# T\n").unwrap_err().contains("completed"));
        assert!(read("---\na: [\n---\n# T\n").is_err());
        assert!(read("# T\n").is_err());
        assert!(read("---\nstatus: pending\n---\n## T\n").is_err());
    }

    #[test]
    fn task_title_must_be_one_line() {
        for title in ["", "  ", "a\nb", &"x".repeat(201)] {
            assert!(NewTask { title: title.to_owned(), ..NewTask::default() }.check().is_err(), "{title:?}");
        }
    }
}
