//! `safe_experiment`: change something, look, and go back if it was wrong.

use super::table::Prompt;
use super::words::{WORKSPACE, Words, text};
use crate::args::{Invalid, Reader, Slot, Text};

const TASK: Text = text("task", "What to try.");

pub(crate) const PROMPT: Prompt = Prompt {
    name: "safe_experiment",
    title: "Safe experiment with rollback",
    description: "Try something in a workspace, one step at a time, and go back to a snapshot whenever it goes wrong.",
    slots: &[Slot::Required(&TASK), Slot::Optional(&WORKSPACE)],
    needs: &["workspace_create", "exec"],
    needs_snapshots: true,
    write,
};

fn write(mut args: Reader, words: Words<'_>) -> Result<String, Invalid> {
    let task = args.required(&TASK);
    let workspace = args.optional(&WORKSPACE);
    let (task, workspace) = args.finish((|| Some((task?, workspace?)))())?;
    Ok(format!(
        "Try this as an experiment that can be undone:\n\n{task}\n\n\
         1. {place}\n\
         2. Before the first change take a snapshot named \"before\" with {create}.\n\
         3. Make one change at a time with exec, and check after each one that it did what it should. Take another \
         snapshot after every step that you would not like to repeat.\n\
         4. When a step goes wrong, do not repair what it left behind: go back to the last good snapshot with {restore} and \
         try another way.\n\
         5. At the end say what you tried, what worked, what was undone, and in which snapshot the result is. If nothing \
         worked, go back to \"before\".\n",
        place = words.place(workspace.as_ref()),
        create = words.snapshot_create(),
        restore = words.snapshot_restore(),
    ))
}
