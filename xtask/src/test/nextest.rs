//! The workspace's own tests, through nextest, counted from its JUnit report.

use std::path::Path;

use anyhow::{Context, Result};

use super::prepare::{FEATURES, Prepared};
use super::tally::{SkipLog, Tally};
use crate::shell;

const REPORT: &str = "target/nextest/default/junit.xml";

/// Runs all tests, or those that `filter` (nextest's own arguments) leaves.
pub(crate) fn run(prepared: &Prepared, skips: &mut SkipLog, filter: &[String]) -> Result<Tally> {
    let report = shell::root().join(REPORT);
    // The report of an earlier run must not be mistaken for that of this run.
    if report.exists() {
        std::fs::remove_file(&report).with_context(|| format!("removing {}", report.display()))?;
    }
    let mut command = shell::cargo();
    command
        .args(["nextest", "run", "--workspace", "--no-tests", "pass", "--features", FEATURES])
        .args(filter);
    prepared.environment(&mut command, skips.path());
    let outcome = shell::run(&mut command);
    if !report.exists() {
        outcome.context("nextest ended without a report")?;
        return Ok(Tally::default());
    }
    let mut tally = read_report(&report)?;
    if let Err(error) = outcome
        && tally.failed == 0
    {
        return Err(error.context("nextest failed although its report names no failed test"));
    }
    tally.turn_passes_into_skips(skips.new_lines()?);
    Ok(tally)
}

fn read_report(path: &Path) -> Result<Tally> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(parse(&text))
}

/// Counts the cases of a JUnit report. A case that holds a `<failure` or `<error` failed; flaky and rerun cases
/// have elements of other names.
fn parse(xml: &str) -> Tally {
    let mut tally = Tally::default();
    for case in xml.split("<testcase ").skip(1) {
        let (opening, body) = case.split_once('>').unwrap_or((case, ""));
        let body = if opening.ends_with('/') { "" } else { body.split("</testcase>").next().unwrap_or("") };
        if body.contains("<failure") || body.contains("<error") {
            let name = attribute(opening, "name").unwrap_or("?");
            let class = attribute(opening, "classname").unwrap_or("?");
            tally.fail(format!("{class} {name}"));
        } else {
            tally.pass();
        }
    }
    tally
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    // The space keeps `name` from matching the end of `classname`.
    let padded = format!(" {name}=\"");
    let start =
        tag.strip_prefix(&padded[1..]).or_else(|| tag.find(&padded).map(|at| &tag[at + padded.len()..]))?;
    start.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_counted_and_failures_named() {
        let xml = r#"<testsuites tests="3"><testsuite name="agentiso-core">
            <testcase name="names::hostile" classname="agentiso-core" time="0.1"></testcase>
            <testcase name="quick" classname="agentiso-core"/>
            <testcase name="boots" classname="agentiso-e2e"><failure type="test failure">x</failure></testcase>
            </testsuite></testsuites>"#;
        let tally = parse(xml);
        assert_eq!((tally.passed, tally.failed), (2, 1));
        assert_eq!(tally.failures, ["agentiso-e2e boots"]);
    }
}
