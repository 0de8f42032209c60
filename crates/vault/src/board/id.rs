//! Ids of tasks: a number, which also gives the name of the note.

use std::fmt;

use serde::Serialize;

use super::error::BoardError;

/// `task-` and a number of at least three digits. Ids sort by number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct TaskId {
    number: u32,
    text: String,
}

impl TaskId {
    pub fn parse(text: &str) -> Result<Self, BoardError> {
        let digits = text.strip_prefix("task-").filter(|digits| digits.len() >= 3);
        let number =
            digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit())).and_then(|d| d.parse().ok());
        match number.map(Self::new) {
            // Each number has exactly one spelling.
            Some(id) if id.text == text => Ok(id),
            Some(_) | None => Err(BoardError::TaskId { text: text.chars().take(60).collect() }),
        }
    }

    fn new(number: u32) -> Self {
        Self { number, text: format!("task-{number:03}") }
    }

    /// The id that follows the highest of these.
    pub(super) fn after<'a>(known: impl Iterator<Item = &'a Self>) -> Option<Self> {
        known.map(|id| id.number).max().unwrap_or(0).checked_add(1).map(Self::new)
    }

    /// The id for a note's file name, if it is a task.
    pub(super) fn of_file(name: &str) -> Option<Self> {
        name.strip_suffix(".md").and_then(|stem| Self::parse(stem).ok())
    }

    pub(super) fn file(&self) -> String {
        format!("{}.md", self.text)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> Self {
        id.text
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_ids_have_one_spelling_and_sort_numerically() {
        assert_eq!(TaskId::parse("task-007").unwrap().file(), "task-007.md");
        assert!(TaskId::parse("task-999").unwrap() < TaskId::parse("task-1000").unwrap());
        for bad in
            ["", "task-", "task-7", "task-0001", "task-+07", "task-99999999999", "../task-001", "TASK-001"]
        {
            assert!(TaskId::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(TaskId::of_file("INDEX.md"), None);
    }
}
