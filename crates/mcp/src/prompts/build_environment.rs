//! `build_environment`: a workspace that is set up once and used for a long time.

use super::table::Prompt;
use super::words::{Words, text};
use crate::args::{Invalid, NewName, Reader, Slot, Text};

const REPOSITORY: Text = text("repository", "URL of the git repository to build.");
const NAME: NewName = NewName::new("name", "Name of the workspace, to find it again.");
const SETUP: Text = text("setup", "What must be installed, in words or as commands.");

pub(crate) const PROMPT: Prompt = Prompt {
    name: "build_environment",
    title: "Persistent build environment",
    description: "Set up a workspace with a repository and its tools once, keep it as a snapshot, and reuse it in later \
                  sessions.",
    slots: &[Slot::Required(&REPOSITORY), Slot::Required(&NAME), Slot::Optional(&SETUP)],
    needs: &["workspace_prepare", "workspace_adopt", "workspace_stop", "workspace_start", "exec"],
    needs_snapshots: true,
    write,
};

fn write(mut args: Reader, words: Words<'_>) -> Result<String, Invalid> {
    let repository = args.required(&REPOSITORY);
    let name = args.required(&NAME);
    let setup = args.optional(&SETUP);
    let (repository, name, setup) = args.finish((|| Some((repository?, name?, setup?)))())?;
    let tools = match setup {
        Some(setup) => format!("It needs:\n\n{setup}\n"),
        None => "Find out from the repository what it needs to build and test.\n".to_owned(),
    };
    Ok(format!(
        "Set up a persistent build environment for {repository}. {tools}\n\
         1. Call workspace_prepare with the name \"{name}\", the URL as git_url and what must be installed as \
         setup_commands. It clones into /workspace and takes the snapshot \"golden\". If the workspace exists already, it \
         is reused, also one of an earlier session.\n\
         2. Build once and run the tests with exec, with a sufficient timeout_secs, to fill caches. Then take a \
         snapshot named \"built\" with {create}.\n\
         3. Work in it. When its state is in doubt, return to \"built\" with {restore}; that is faster than a new build.\n\
         4. When you are done for now, stop it with workspace_stop: disk and snapshots are kept. In a later session, take it \
         over with workspace_adopt and boot it with workspace_start.\n\
         5. Report how to build and test it, and which snapshots exist.\n",
        create = words.snapshot_create(),
        restore = words.snapshot_restore(),
    ))
}
