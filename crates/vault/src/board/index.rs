//! The text of a board's `INDEX.md`.

use std::fmt::Write;

use super::order::blockers;
use super::task::{Status, Task};

pub(super) fn render(team: &str, tasks: &[Task], now: &str) -> String {
    let of = |status: Status| tasks.iter().filter(move |task| task.status == status);
    let counts: Vec<String> =
        Status::ALL.iter().map(|status| format!("{} {}", of(*status).count(), words(*status))).collect();
    let mut text = format!(
        "# Tasks of team {team}\n\nUpdated: {now}\n\n{} in all: {}\n",
        tasks.len(),
        counts.join(", ").to_lowercase()
    );
    for status in Status::ALL {
        if of(status).next().is_none() {
            continue;
        }
        write(&mut text, format_args!("\n## {}\n\n", words(status)));
        for task in of(status) {
            let details = details(task, tasks);
            write(&mut text, format_args!("- [{}] {}: {} ({details})\n", mark(status), task.id, task.title));
        }
    }
    text
}

fn details(task: &Task, tasks: &[Task]) -> String {
    let mut details = Vec::new();
    if let Some(owner) = &task.owner {
        details.push(format!("owner: {owner}"));
    }
    details.push(format!("priority: {}", task.priority.as_str()));
    let blockers = blockers(task, tasks);
    let finished = matches!(task.status, Status::Completed | Status::Failed);
    if !finished && !blockers.is_empty() {
        details.push(format!("blocked by: {}", blockers.join(", ")));
    }
    details.join(", ")
}

fn words(status: Status) -> &'static str {
    match status {
        Status::Pending => "Pending",
        Status::Claimed => "Claimed",
        Status::InProgress => "In Progress",
        Status::Completed => "Completed",
        Status::Failed => "Failed",
    }
}

fn mark(status: Status) -> char {
    match status {
        Status::Pending => ' ',
        Status::Claimed | Status::InProgress => '~',
        Status::Completed => 'x',
        Status::Failed => '!',
    }
}

/// Writing to a `String` cannot fail.
fn write(text: &mut String, words: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(words);
}
