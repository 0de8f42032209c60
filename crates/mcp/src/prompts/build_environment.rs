//! `build_environment`: a machine that is set up once and used for a long time.

use super::table::Prompt;
use super::words::{Words, text};
use crate::args::{Invalid, NewName, Reader, Slot, Text};

const REPOSITORY: Text = text("repository", "URL of the git repository that is built.");
const NAME: NewName = NewName { name: "name", about: "Name of the workspace, to find it again." };
const SETUP: Text = text("setup", "What must be installed, in words or as commands.");

pub(crate) const PROMPT: Prompt = Prompt {
    name: "build_environment",
    title: "Persistent build environment",
    description: "Set up a workspace with a repository and its tools once, keep it as a snapshot, and use it again in later \
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
        None => "Look into the repository for what it needs to be built and tested.\n".to_owned(),
    };
    Ok(format!(
        "Set up a build environment that lasts, for {repository}. {tools}\n\
         1. Call workspace_prepare with the name \"{name}\", the URL as git_url and what must be installed as \
         setup_commands. It clones into /workspace and takes the snapshot \"golden\". If the workspace is there already it \
         is used again, in this session too.\n\
         2. Build once and run the tests with exec, with a timeout_secs that suits, so that caches are filled. Then take a \
         snapshot named \"built\" with {create}.\n\
         3. Work in it. When its state is in doubt, go back to \"built\" with {restore}; that costs less than building anew.\n\
         4. When you are done for now, stop it with workspace_stop: disk and snapshots stay. In a later session \
         workspace_adopt takes it over and workspace_start brings it back.\n\
         5. Say how it is built and tested, and which snapshots there are.\n",
        create = words.snapshot_create(),
        restore = words.snapshot_restore(),
    ))
}
