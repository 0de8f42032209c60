//! `./x docs`: the documents against the repository.
//!
//! Relative links must lead somewhere, `./x` chores that a document names must exist, and so must the tests in
//! docs/security.md, docs/contract.md and docs/limits.md. Tests, module comments and documents use plain words, and
//! the crates depend on each other in one direction. Tests beside the code compare it with the references of commands,
//! configuration and tools; `--update` rewrites the generated references.

mod crates;
mod guards;
mod modules;
mod sources;
mod words;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::shell;

#[derive(Args)]
pub(crate) struct Options {
    /// Regenerate the reference documents from the code
    #[arg(long)]
    update: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = shell::root();
    // Needs no build, so it comes before what does.
    let mut problems = crates::problems(&root, options.update)?;
    if options.update {
        // The tests that compare write instead when they see this.
        shell::run(
            shell::cargo().args(["test", "--package", "agentiso", "docs"]).env("AGENTISO_UPDATE_DOCS", "1"),
        )?;
        shell::run(
            shell::cargo()
                .args(["test", "--package", "agentiso-mcp", "docs"])
                .env("AGENTISO_UPDATE_DOCS", "1"),
        )?;
    }
    let chores = chores(&root)?;
    let documents = documents(&root)?;
    for document in &documents {
        let text =
            std::fs::read_to_string(document).with_context(|| format!("reading {}", document.display()))?;
        let name = document.strip_prefix(&root).unwrap_or(document).display().to_string();
        let dir = document.parent().unwrap_or(&root);
        for link in links(&text) {
            if !dir.join(link).exists() {
                problems.push(format!("{name}: broken link to {link}"));
            }
        }
        for chore in named_chores(&text) {
            if !chores.iter().any(|known| known == chore) {
                problems.push(format!("{name}: there is no chore ./x {chore}"));
            }
        }
    }
    let sources = sources::read(&root)?;
    problems.extend(guards::problems(&root, &sources)?);
    problems.extend(modules::problems(&sources));
    problems.extend(words::problems(&root, &documents, &sources)?);
    if !problems.is_empty() {
        bail!("problems in the documents:\n  {}", problems.join("\n  "));
    }
    println!("documents ok");
    Ok(())
}

fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for dir in [root.to_owned(), root.join("docs")] {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The first column of the help text of `./x`.
fn chores(root: &Path) -> Result<Vec<String>> {
    let script = std::fs::read_to_string(root.join("x")).context("reading x")?;
    let help = script.split("<<'HELP'").nth(1).and_then(|rest| rest.split("\nHELP").next());
    let help = help.context("./x has no help text")?;
    Ok(help
        .lines()
        .filter(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

/// Targets of relative links, without their fragments.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter_map(|target| {
        let path = target.split('#').next().unwrap_or("");
        (!path.is_empty() && !path.contains("://") && !path.starts_with("mailto:")).then_some(path)
    })
}

fn named_chores(text: &str) -> impl Iterator<Item = &str> {
    text.split("./x ").skip(1).filter_map(|rest| {
        let word = rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or("");
        (!word.is_empty()).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_within_the_repository_are_followed() {
        let text = "[a](docs/a.md) [b](https://example.org) [c](#part) [d](docs/d.md#part)";
        assert_eq!(links(text).collect::<Vec<_>>(), ["docs/a.md", "docs/d.md"]);
    }

    #[test]
    fn chores_are_found_in_text() {
        assert_eq!(named_chores("run `./x up`, then ./x test --help").collect::<Vec<_>>(), ["up", "test"]);
    }

    #[test]
    fn help_of_x_lists_its_chores() {
        let chores = chores(&shell::root()).unwrap();
        for chore in ["up", "test", "bench", "deny", "help"] {
            assert!(chores.iter().any(|known| known == chore), "{chore} is missing in {chores:?}");
        }
    }
}
