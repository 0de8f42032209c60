//! The report as a document.

use super::{Report, units};
use crate::figures::Key;
use crate::goals;

pub(super) fn render(report: &Report) -> String {
    let mut text = format!("# {}\n\n{}\n\n", report.facts.title(), report.facts.sentence());
    text.push_str("| goal | measured | limit | verdict |\n|---|---|---|---|\n");
    for goal in report.goals() {
        let (measured, limit) = units::goal(&goal);
        text.push_str(&format!("| {} | {measured} | ≤ {limit} | {} |\n", goal.title, goal.verdict.text()));
    }
    text.push_str("\n| figure | p50 | |\n|---|---|---|\n");
    for key in Key::ALL {
        let (value, detail) = units::figure(report.figures.get(key));
        text.push_str(&format!("| {} | {value} | {} |\n", key.title().trim(), detail.replace('|', "\\|")));
    }
    text.push_str("\n| in proportion | ratio |\n|---|---|\n");
    for (title, value) in goals::ratios(&report.figures) {
        text.push_str(&format!("| {title} | {} |\n", units::ratio(value)));
    }
    text.push_str("\nWhat each figure means: [benches/README.md](../README.md).\n");
    text
}
