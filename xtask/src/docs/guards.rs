//! docs/security.md, docs/contract.md and docs/limits.md against the code: every weakness has its line, every line of the
//! contract names a test, and every test that is named is there.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};

/// How many weaknesses are listed, by their numbers from 1 on.
const WEAKNESSES: usize = 68;

/// Names of tests are sentences; what has fewer joints is a key or a tool.
const JOINTS_OF_A_TEST: usize = 3;

const SECURITY: &str = "docs/security.md";
const CONTRACT: &str = "docs/contract.md";
const LIMITS: &str = "docs/limits.md";

pub(super) fn problems(root: &Path) -> Result<Vec<String>> {
    let mut tests = HashSet::new();
    for part in ["crates", "tests", "xtask"] {
        collect(&root.join(part), &mut tests)?;
    }
    let mut problems = Vec::new();
    for document in [SECURITY, CONTRACT, LIMITS] {
        let text =
            std::fs::read_to_string(root.join(document)).with_context(|| format!("reading {document}"))?;
        let missing = named_tests(&text).filter(|test| !tests.contains(*test));
        problems.extend(missing.map(|test| format!("{document}: there is no test {test}")));
        match document {
            SECURITY if !is_complete(&text) => {
                problems.push(format!("{document}: not each of 1 to {WEAKNESSES} has one line"));
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

/// The names of all tests in the Rust files below a directory.
fn collect(dir: &Path, tests: &mut HashSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, tests)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            tests.extend(marked(&text).chain(listed(&text)).map(str::to_owned));
        }
    }
    Ok(())
}

/// Functions with the attribute of a test.
fn marked(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("fn ").filter_map(|(at, word)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        is_marked(before).then(|| words(after).next()).flatten()
    })
}

/// Whether the lines right above, as far as they belong to the function that follows, make a test of it.
fn is_marked(before: &str) -> bool {
    let own = |line: &&str| !line.is_empty() && !line.ends_with(['{', '}', ';']);
    let mut lines = before.rsplit('\n').map(str::trim);
    // The beginning of the function's own line may be nothing but space.
    let first = lines.next();
    first.into_iter().chain(lines.take_while(own)).any(has_test_attribute)
}

/// `#[test]`, the same of any runtime, and `#[rstest]`; those of `proptest!` have the first.
fn has_test_attribute(line: &str) -> bool {
    line.split("#[").skip(1).any(|rest| {
        let attribute = rest.split([']', '(']).next().unwrap_or_default();
        matches!(attribute, "test" | "rstest") || attribute.ends_with("::test")
    })
}

/// What is listed in calls of the file's own macros that make tests.
fn listed(text: &str) -> Vec<&str> {
    let mut listed = Vec::new();
    for (name, body) in text.split("macro_rules! ").skip(1).filter_map(|rest| rest.split_once(' ')) {
        let body = block(body);
        if body.contains("fn $") && body.lines().any(has_test_attribute) {
            listed.extend(text.split(&format!("\n{name}!")).skip(1).flat_map(|call| words(block(call))));
        }
    }
    listed
}

/// Up to the bracket that closes it, which is at the beginning of a line.
fn block(text: &str) -> &str {
    let end = ["\n}", "\n)"].iter().filter_map(|end| text.find(end)).min();
    &text[..end.unwrap_or(text.len())]
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_a_name(c)).filter(|word| !word.is_empty())
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
    }

    #[test]
    fn a_function_is_a_test_if_it_is_marked_or_listed_as_one() {
        let text = "#[test]\n// Why.\n#[expect(\n    x,\n    reason = \"y\"\n)]\nfn one_a() {\n    fn no_a() {}\n}\n\
                    fn no_b() {}\n\n    #[tokio::test(start_paused = true)]\n    async fn two_b<T>() {}\n\
                    #[test]\n\nfn no_c() {}\nuse x;\nfn no_d() {}\n#[testing]\nfn no_e() {}\n";
        assert_eq!(marked(text).collect::<Vec<_>>(), ["one_a", "two_b"]);
        let text = "macro_rules! every {\n    ($($name:ident)*) => {\n        $(#[test] fn $name() {})*\n    };\n}\n\n\
                    every! {\n    one_a\n    of::two_b,\n}\nmacro_rules! other {\n    () => { fn $x() {} };\n}\n\
                    other!(\n    no_a\n);\n";
        assert_eq!(listed(text), ["one_a", "of", "two_b"]);
    }

    #[test]
    fn a_point_without_a_test_is_found() {
        let text =
            "| | what | tests |\n| 0.1 | a | `one_two_three_four` |\n| 1.2.3 | b | `max_workspaces` |\n";
        assert_eq!(unguarded(text).collect::<Vec<_>>(), ["1.2.3"]);
    }

    #[test]
    fn every_test_of_the_documents_is_there() {
        assert_eq!(problems(&crate::shell::root()).unwrap(), Vec::<String>::new());
    }
}
