//! `safe_experiment`: make a change, check it, and go back to a snapshot if it was wrong.

use super::table::Prompt;
use super::words::{WORKSPACE, Words, text};
use crate::args::{Invalid, Reader, Slot, Text};

const TASK: Text = text("task", "What to try.");

pub(crate) const PROMPT: Prompt = Prompt {
    name: "safe_experiment",
    title: "Safe experiment with rollback",
    description: "Try something in a workspace, one step at a time, and return to a snapshot whenever it goes wrong.",
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
         2. Before the first change, take a snapshot named \"before\" with {create}.\n\
         3. Make one change at a time with exec, and check after each one that it worked. Take another \
         snapshot after every step that you would not want to repeat.\n\
         4. When a step goes wrong, do not repair the damage: return to the last good snapshot with {restore} and \
         try another way.\n\
         5. At the end, report what you tried, what worked, what was undone, and which snapshot has the result. If nothing \
         worked, return to \"before\".\n",
        place = words.place(workspace.as_ref()),
        create = words.snapshot_create(),
        restore = words.snapshot_restore(),
    ))
}
