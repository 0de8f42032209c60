//! `agentiso vault ls`: lists notes and folders.

use std::process::ExitCode;

use agentiso_vault::{Entry, FolderPath};

use super::{failed, open, parsed};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// List notes and folders
#[derive(clap::Args, Debug)]
#[command(
    visible_alias = "list",
    after_help = "\
Examples:
  agentiso vault ls
  agentiso vault ls teams/web/tasks
  agentiso vault ls -r --json | jq -r '.[] | select(.is_dir | not) | .path'"
)]
pub(crate) struct Arguments {
    /// Folder in the vault [default: the whole vault]
    folder: Option<String>,
    /// Include subfolders
    #[arg(long, short)]
    recursive: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let folder = arguments.folder.as_deref().unwrap_or_default();
    let folder = parsed(folder, FolderPath::parse(folder))?;
    let listing = open(context)?.list(&folder, arguments.recursive).map_err(failed)?;
    if arguments.json {
        output::json(&listing.entries)?;
    } else if listing.entries.is_empty() {
        output::line("no notes")?;
    } else {
        output::line(&render(&listing.entries))?;
    }
    if !listing.complete {
        return Err(Failure::new("timed out before everything was listed"));
    }
    Ok(ExitCode::SUCCESS)
}

fn render(entries: &[Entry]) -> String {
    let rows = entries.iter().map(|entry| {
        let size = entry.size.map_or_else(|| "-".to_owned(), output::size);
        [output::one_line(&entry.path) + if entry.is_dir { "/" } else { "" }, size]
    });
    output::table(["PATH", "SIZE"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vault_folders_end_with_a_slash() {
        let entries = [
            Entry { path: "a".to_owned(), is_dir: true, size: None },
            Entry { path: "a/b.md".to_owned(), is_dir: false, size: Some(3) },
        ];
        assert_eq!(render(&entries), "PATH    SIZE\na/      -\na/b.md  3 B");
    }
}
