//! Named steps with their times, for the table at the end of `./x up`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
}

impl Steps {
    /// Runs one step, prints its name, and records its duration.
    pub(crate) fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("==> {name}");
        let start = Instant::now();
        let value = work().with_context(|| format!("step \"{name}\""))?;
        self.done.push((name.to_owned(), start.elapsed()));
        Ok(value)
    }

    /// Records a step that another program ran and timed.
    pub(crate) fn record(&mut self, name: &str, time: Duration) {
        self.done.push((name.to_owned(), time));
    }

    pub(crate) fn rows(&self) -> Vec<(String, String)> {
        self.done.iter().map(|(name, time)| (name.clone(), seconds(*time))).collect()
    }
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Two aligned columns under a heading.
pub(crate) fn table(heading: &str, rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    let mut text = format!("{heading}\n");
    for (left, right) in rows {
        text.push_str(&format!("  {left:<width$}  {right}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [("a".to_owned(), "1".to_owned()), ("long".to_owned(), "2".to_owned())];
        assert_eq!(table("H", &rows), "H\n  a     1\n  long  2\n");
    }

    #[test]
    fn failed_step_is_named_and_not_timed() {
        let mut steps = Steps::default();
        let failed: Result<()> = steps.step("build", || anyhow::bail!("no compiler"));
        assert!(format!("{:#}", failed.unwrap_err()).contains("build"));
        assert!(steps.rows().is_empty());
    }
}
