//! The report on a terminal.

use super::{Report, units};
use crate::figures::Key;
use crate::goals;

pub(crate) fn render(report: &Report) -> String {
    let mut text = format!("\n{}\n\n", report.facts.sentence());
    let figures = Key::ALL.map(|key| {
        let (value, detail) = units::figure(report.figures.get(key));
        vec![key.title().to_owned(), value, detail]
    });
    text.push_str(&columns(&["figure", "p50", ""], &figures));
    text.push('\n');
    let ratios: Vec<_> = goals::ratios(&report.figures)
        .into_iter()
        .map(|(title, value)| vec![title.to_owned(), units::ratio(value)])
        .collect();
    text.push_str(&columns(&["in proportion", "ratio"], &ratios));
    text.push('\n');
    let goals: Vec<_> = report
        .goals()
        .iter()
        .map(|goal| {
            let (measured, limit) = units::goal(goal);
            vec![goal.title.to_owned(), measured, format!("≤ {limit}"), goal.verdict.text().to_owned()]
        })
        .collect();
    text.push_str(&columns(&["goal", "measured", "limit", "verdict"], &goals));
    text
}

/// Left-aligned columns. The width of a text is its number of characters, which is right for all texts here.
fn columns(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<_> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}\n", padded.join("  ")).trim_end().to_owned() + "\n"
    };
    let mut text = line(heads.to_vec());
    text.push_str(&line(widths.iter().map(|width| &RULE[..width * RULE_CHAR]).collect()));
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

/// A line long enough for any column here.
const RULE: &str = "────────────────────────────────────────────────────────────────────────────────────────────────\
     ────────────────────────────────────────────────────────────────────────────────────────────────";
const RULE_CHAR: usize = "─".len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "µs".to_owned()], vec!["long".to_owned(), "2".to_owned()]];
        assert_eq!(columns(&["x", "y"], &rows), "  x     y\n  ────  ──\n  a     µs\n  long  2\n");
    }
}
