//! Generates and checks docs/cli.md: the help of every command, on one page.

use std::fmt::Write as _;

use super::document;
use crate::commands;

fn reference() -> String {
    let mut text = String::from(
        "# The command line\n\nGenerated from the program's own help; `./x docs --update` writes it anew.\n",
    );
    let mut root = commands::definition().term_width(100).disable_colored_help(true);
    root.build();
    section(&mut text, &mut root, "agentiso");
    text
}

fn section(text: &mut String, command: &mut clap::Command, path: &str) {
    let level = "#".repeat(1 + path.split(' ').count().min(3));
    let help = command.render_long_help().to_string();
    let help = help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let _ = write!(text, "\n{level} {path}\n\n```text\n{}\n```\n", help.trim());
    for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
        let path = format!("{path} {}", sub.get_name());
        section(text, sub, &path);
    }
}

#[test]
fn docs_cli_md_matches_program_help() {
    let path = document("cli.md");
    let reference = reference();
    if std::env::var_os("AGENTISO_UPDATE_DOCS").is_some() {
        std::fs::write(&path, reference).unwrap();
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == reference,
        "docs/cli.md differs from the help of the program; run `./x docs --update`"
    );
}
