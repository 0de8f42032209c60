//! docs/security.md against the code: every weakness has its line, and every test that a line names is there.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};

/// How many weaknesses are listed, by their numbers from 1 on.
const WEAKNESSES: usize = 68;

/// Names of tests are sentences; what has fewer joints is a key or a tool.
const JOINTS_OF_A_TEST: usize = 3;

pub(super) fn problems(root: &Path) -> Result<Vec<String>> {
    let document = root.join("docs/security.md");
    let text = std::fs::read_to_string(&document).context("reading docs/security.md")?;
    let mut functions = HashSet::new();
    for part in ["crates", "tests", "xtask"] {
        collect(&root.join(part), &mut functions)?;
    }
    let missing = named_tests(&text).filter(|test| !functions.contains(*test));
    let mut problems: Vec<String> =
        missing.map(|test| format!("docs/security.md: there is no test {test}")).collect();
    let mut numbers: Vec<usize> = numbers(&text).collect();
    numbers.sort_unstable();
    if !numbers.iter().copied().eq(1..=WEAKNESSES) {
        problems.push(format!("docs/security.md: not each of 1 to {WEAKNESSES} has one line"));
    }
    Ok(problems)
}

/// The names of all functions in the Rust files below a directory.
fn collect(dir: &Path, functions: &mut HashSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, functions)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            functions.extend(named_functions(&text).map(str::to_owned));
        }
    }
    Ok(())
}

fn named_functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).filter_map(|rest| rest.split(|c: char| !is_of_a_name(c)).next())
}

/// What stands in backticks and can only be a test.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|word| {
        word.chars().all(is_of_a_name) && word.chars().filter(|c| *c == '_').count() >= JOINTS_OF_A_TEST
    })
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

/// The first columns of the tables.
fn numbers(text: &str) -> impl Iterator<Item = usize> {
    text.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_other_words() {
        let text = "| 7 | x | `a_test_that_is_there`, `max_workspaces`, `./x up` and `RUN_OPTIONS` |\n";
        assert_eq!(named_tests(text).collect::<Vec<_>>(), ["a_test_that_is_there"]);
        assert_eq!(numbers(text).collect::<Vec<_>>(), [7]);
        assert_eq!(
            named_functions("async fn one_two() {}\n fn three<T>(").collect::<Vec<_>>(),
            ["one_two", "three"]
        );
    }

    #[test]
    fn every_test_of_the_document_is_there() {
        assert_eq!(problems(&crate::shell::root()).unwrap(), Vec::<String>::new());
    }
}
