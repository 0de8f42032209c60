//! docs/security.md, docs/contract.md and docs/limits.md against the code: every weakness has its line, every line of the
//! contract names a test, and every test that is named is there.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};

use super::sources::{Source, is_of_a_name};

/// The number of listed weaknesses, which have the numbers from 1 on.
const WEAKNESSES: usize = 68;

/// Names of tests are sentences; names with fewer joints are keys or tools.
const JOINTS_OF_A_TEST: usize = 3;

const SECURITY: &str = "docs/security.md";
const CONTRACT: &str = "docs/contract.md";
const LIMITS: &str = "docs/limits.md";

pub(super) fn problems(root: &Path, sources: &[Source]) -> Result<Vec<String>> {
    let tests: HashSet<&str> = sources.iter().flat_map(Source::tests).collect();
    let mut problems = Vec::new();
    for document in [SECURITY, CONTRACT, LIMITS] {
        let text =
            std::fs::read_to_string(root.join(document)).with_context(|| format!("reading {document}"))?;
        let missing = named_tests(&text).filter(|test| !tests.contains(*test));
        problems.extend(missing.map(|test| format!("{document}: there is no test {test}")));
        match document {
            SECURITY if !is_complete(&text) => {
                problems.push(format!(
                    "{document}: every number from 1 to {WEAKNESSES} must have exactly one line"
                ));
            }
            CONTRACT => {
                let unguarded = unguarded(&text);
                problems.extend(unguarded.map(|point| format!("{document}: {point} has no test")));
            }
            _ => {}
        }
    }
    Ok(problems)
}

fn is_complete(text: &str) -> bool {
    let mut numbers: Vec<usize> = numbers(text).collect();
    numbers.sort_unstable();
    numbers.into_iter().eq(1..=WEAKNESSES)
}

/// The numbers of points, such as `1.4.7`, whose line names no test.
fn unguarded(text: &str) -> impl Iterator<Item = &str> {
    let points = text.lines().filter_map(|line| {
        let (point, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        point.starts_with(|c: char| c.is_ascii_digit()).then_some((point, rest))
    });
    points.filter(|(_, rest)| named_tests(rest).next().is_none()).map(|(point, _)| point)
}

/// Words in backticks that can only be names of tests.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|word| {
        word.chars().all(is_of_a_name) && word.chars().filter(|c| *c == '_').count() >= JOINTS_OF_A_TEST
    })
}

/// The first columns of the tables.
fn numbers(text: &str) -> impl Iterator<Item = usize> {
    text.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_differ_from_other_words() {
        let text = "| 7 | x | `a_test_that_is_there`, `max_workspaces`, `./x up` and `RUN_OPTIONS` |\n";
        assert_eq!(named_tests(text).collect::<Vec<_>>(), ["a_test_that_is_there"]);
        assert_eq!(numbers(text).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn points_without_a_test_are_found() {
        let text =
            "| | what | tests |\n| 0.1 | a | `one_two_three_four` |\n| 1.2.3 | b | `max_workspaces` |\n";
        assert_eq!(unguarded(text).collect::<Vec<_>>(), ["1.2.3"]);
    }

    #[test]
    fn documents_name_existing_tests() {
        let root = crate::shell::root();
        let sources = super::super::sources::read(&root).unwrap();
        assert_eq!(problems(&root, &sources).unwrap(), Vec::<String>::new());
    }
}
