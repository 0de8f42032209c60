//! The examples in the documentation comments, which nextest does not run.

use anyhow::Result;
use std::time::Duration;

use super::prepare::FEATURES;
use super::tally::Tally;
use crate::shell;

/// The time limit for compiling and running all examples; it is long enough that only a hang reaches it.
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn run() -> Result<Tally> {
    let mut command = shell::cargo();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast", "--features", FEATURES]);
    eprintln!("$ {}", shell::shown(&command));
    let mut tally = Tally::default();
    let Some(output) = shell::collect_within(&mut command, LIMIT)? else {
        tally.fail("documentation examples: did not end in time");
        return Ok(tally);
    };
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        match line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            Some((_, "ok")) => tally.pass(),
            Some((name, "FAILED")) => tally.fail(format!("example {name}")),
            // Ignored examples are text, not tests.
            Some(_) | None => {}
        }
    }
    if !output.status.success() {
        eprintln!("{text}{}", String::from_utf8_lossy(&output.stderr));
        if tally.failed == 0 {
            tally.fail("documentation examples: did not build");
        }
    }
    Ok(tally)
}
