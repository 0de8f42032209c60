//! `agentiso vault read`: prints a note.

use std::process::ExitCode;

use agentiso_vault::{NotePath, frontmatter};
use serde_json::json;

use super::{failed, open, parsed};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// Print a note
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso vault read plans/today.md
  agentiso vault read plans/today.md --json | jq .frontmatter")]
pub(crate) struct Arguments {
    /// Path of the note, relative to the vault
    note: String,
    /// Print JSON, with the frontmatter parsed
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let path = parsed(&arguments.note, NotePath::parse(&arguments.note))?;
    let text = open(context)?.read(&path).map_err(failed)?;
    if arguments.json {
        let keys = frontmatter::read(&text);
        let problem = keys.as_ref().err().cloned();
        let mut note =
            json!({ "path": path.to_string(), "content": text, "frontmatter": keys.ok().flatten() });
        if let Some(problem) = problem {
            note["frontmatter_error"] = problem.into();
        }
        output::json(&note)?;
    } else {
        output::bytes(text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
