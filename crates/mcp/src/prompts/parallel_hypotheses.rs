//! `parallel_hypotheses`: several ideas from the same starting point, each in a fork.

use super::table::Prompt;
use super::words::{SNAPSHOT, WORKSPACE, Words, text};
use crate::args::{Invalid, Reader, Slot, Text};

const PROBLEM: Text = text("problem", "What to find out or solve.");
const HYPOTHESES: Text = text("hypotheses", "Ideas to try, one per line. Default: the model finds three.");

pub(crate) const PROMPT: Prompt = Prompt {
    name: "parallel_hypotheses",
    title: "Parallel hypotheses by fork",
    description: "Fork a workspace once for each idea, try all of them at the same time, and keep the best.",
    slots: &[
        Slot::Required(&PROBLEM),
        Slot::Optional(&HYPOTHESES),
        Slot::Optional(&WORKSPACE),
        Slot::Optional(&SNAPSHOT),
    ],
    needs: &["workspace_create", "workspace_fork", "exec"],
    needs_snapshots: true,
    write,
};

fn write(mut args: Reader, words: Words<'_>) -> Result<String, Invalid> {
    let problem = args.required(&PROBLEM);
    let hypotheses = args.optional(&HYPOTHESES);
    let workspace = args.optional(&WORKSPACE);
    let snapshot = args.optional(&SNAPSHOT);
    if matches!((&workspace, &snapshot), (Some(None), Some(Some(_)))) {
        args.complain(WORKSPACE.name, "is missing; snapshot needs it".to_owned());
    }
    let (problem, hypotheses, workspace, snapshot) =
        args.finish((|| Some((problem?, hypotheses?, workspace?, snapshot?)))())?;
    let ideas = match hypotheses {
        Some(ideas) => format!("The ideas:\n\n{ideas}\n"),
        None => {
            "First find three ideas that differ from each other, and say what each would show.\n".to_owned()
        }
    };
    let beginning = match &snapshot {
        Some(snapshot) => format!("Start from its snapshot \"{snapshot}\"."),
        None => format!(
            "Bring it to the state from which all ideas start, and take a snapshot named \"fork-here\" with {}; \
             include_memory also saves running programs.",
            words.snapshot_create()
        ),
    };
    Ok(format!(
        "Solve this by trying several ideas at the same time:\n\n{problem}\n\n{ideas}\n\
         1. {place} {beginning}\n\
         2. Fork it with workspace_fork, one fork for each idea: count creates all in one call.\n\
         3. Try one idea in each fork, {how}. Forks do not see each other's changes.\n\
         4. Judge all of them by the same command, run in each fork, and show its output.\n\
         5. Report which idea works and why the others do not.{destroy}\n",
        place = words.place(workspace.as_ref()),
        how = words.in_parallel(),
        destroy = words.destroy("the forks that are not worth keeping"),
    ))
}
