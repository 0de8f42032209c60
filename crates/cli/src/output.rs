//! Prints the output of commands: tables for people, JSON for scripts, sizes and ages in words.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Whether colour may be used on standard error: it is a terminal, and neither NO_COLOR nor TERM=dumb is set.
pub(crate) fn stderr_has_colour() -> bool {
    io::stderr().is_terminal() && colour_allowed()
}

pub(crate) fn stdout_has_colour() -> bool {
    io::stdout().is_terminal() && colour_allowed()
}

fn colour_allowed() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A table with a heading and without lines, so that `awk` and `cut` work on it too.
pub(crate) fn table<const N: usize>(heading: [&str; N], rows: Vec<[String; N]>) -> String {
    let heading = heading.map(str::to_owned);
    let all: Vec<_> = std::iter::once(heading).chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let lines = all.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Prints a line to standard output. If the reader is gone (`| head`), the program ends successfully.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    bytes(format!("{text}\n").as_bytes())
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)?;
    line(&text)
}

pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(format!("writing to standard output failed: {error}"))),
    }
}

pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Removes control characters. Text from a guest is untrusted, and its escape sequences must not reach the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// As [`printable`], for text that must stay on one line, such as a path: control characters are shown as escapes.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// The rough age of something, in words.
pub(crate) fn age(then: jiff::Timestamp, now: jiff::Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    let (count, unit) = match seconds {
        0..=119 => (seconds, "second"),
        120..=7_199 => (seconds / 60, "minute"),
        7_200..=172_799 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_no_trailing_blanks() {
        let text = table(["NAME", "STATE"], vec![["a".to_owned(), "running".to_owned()]]);
        assert_eq!(text, "NAME  STATE\na     running");
    }

    #[test]
    fn guest_escape_sequences_are_removed() {
        assert_eq!(printable("a\x1b[31mb\r\n\tc"), "a[31mb\n\tc");
        assert_eq!(one_line("/a\x1b[31m\nä"), "/a\\u{1b}[31m\\nä");
    }

    #[test]
    fn sizes_and_ages_use_readable_units() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(3 << 30), "3.0 GiB");
        let now = jiff::Timestamp::from_second(1_000_000).unwrap();
        let ago = |seconds: i64| age(jiff::Timestamp::from_second(1_000_000 - seconds).unwrap(), now);
        assert_eq!(ago(1), "1 second ago");
        assert_eq!(ago(-5), "0 seconds ago");
        assert_eq!(ago(3 * 3_600), "3 hours ago");
        assert_eq!(ago(3 * 86_400), "3 days ago");
    }
}
