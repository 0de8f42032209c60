//! The Rust sources of the repository, and the names of the tests in them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Directories with Rust sources.
const PARTS: [&str; 5] = ["crates", "tests", "xtask", "benches", "fuzz"];

/// One Rust file.
pub(super) struct Source {
    /// Relative to the repository.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Source {
    /// The names of all tests in this file.
    pub(super) fn tests(&self) -> impl Iterator<Item = &str> {
        marked(&self.text).chain(listed(&self.text))
    }
}

/// Reads all Rust files of the repository, without those of builds.
pub(super) fn read(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for part in PARTS {
        collect(root, &root.join(part), &mut sources)?;
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn collect(root: &Path, dir: &Path, sources: &mut Vec<Source>) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(root, &path, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
            sources.push(Source { path, text });
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

/// Names in calls of the file's own macros that make tests.
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

/// The text up to the bracket that closes it, which is at the beginning of a line.
fn block(text: &str) -> &str {
    let end = ["\n}", "\n)"].iter().filter_map(|end| text.find(end)).min();
    &text[..end.unwrap_or(text.len())]
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_a_name(c)).filter(|word| !word.is_empty())
}

/// Whether a character can be part of the name of a function.
pub(super) fn is_of_a_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_marked_or_listed_functions() {
        let text = "#[test]\n// Why.\n#[expect(\n    x,\n    reason = \"y\"\n)]\nfn one_a() {\n    fn no_a() {}\n}\n\
                    fn no_b() {}\n\n    #[tokio::test(start_paused = true)]\n    async fn two_b<T>() {}\n\
                    #[test]\n\nfn no_c() {}\nuse x;\nfn no_d() {}\n#[testing]\nfn no_e() {}\n";
        assert_eq!(marked(text).collect::<Vec<_>>(), ["one_a", "two_b"]);
        let text = "macro_rules! every {\n    ($($name:ident)*) => {\n        $(#[test] fn $name() {})*\n    };\n}\n\n\
                    every! {\n    one_a\n    of::two_b,\n}\nmacro_rules! other {\n    () => { fn $x() {} };\n}\n\
                    other!(\n    no_a\n);\n";
        assert_eq!(listed(text), ["one_a", "of", "two_b"]);
    }
}
