//! `file_list`: lists a directory.

use agentiso_daemon::{DirEntry, EntryKind, ListOptions};
use serde_json::{Value, json};

use super::shared::{PATH, WORKSPACE, file_failure};
use super::vault::budget::fitting;
use super::view::schema;
use crate::answer::Answer;
use crate::args::{Integer, Invalid, Reader, Slot, Text};
use crate::registry::{Call, Hints, Running, Tool};

const DEPTH: Integer =
    Integer::new("depth", "Levels of directories to list; below the first, name is a path.", 1..=64)
        .default(1);
const GLOB: Text = Text::new("glob", "Only matching entries, such as *.rs, or src/**/*.rs with depth.", 1024);

pub(crate) const TOOL: Tool = Tool {
    name: "file_list",
    title: "List a directory",
    description: "List a directory sorted by name, hidden entries included; with depth, also its \
                  subdirectories. Symlinks are not followed.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&PATH), Slot::Optional(&DEPTH), Slot::Optional(&GLOB)],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    json!({ "entries": schema::list(), "note": schema::optional_text() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let path = args.required(&PATH);
    let depth = args.optional(&DEPTH);
    let glob = args.optional(&GLOB);
    let (workspace, path, options) = args.finish((|| {
        let depth = depth?.and_then(|depth| u32::try_from(depth).ok()).unwrap_or(1);
        Some((workspace?, path?, ListOptions { depth, glob: glob? }))
    })())?;
    Ok(Box::pin(async move {
        let guest = call.session.guest(&workspace).await?;
        let tree = options.depth > 1;
        let listing = guest.list_dir(&path, &options).await.map_err(|error| file_failure(error, &path))?;
        let mut entries = listing.entries;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let views = entries.iter().map(view).collect();
        // A plain directory is shown whole, as the tool promises; a tree can have any size.
        let (views, hidden) = if tree { fitting(views) } else { (views, 0) };
        let shown = views.len();
        let answer = Answer::array("entries", views);
        Ok(if listing.truncated || hidden > 0 {
            answer.with_note(format!(
                "{path} has more than these {shown} entries; use glob, or exec with find, to see others."
            ))
        } else {
            answer
        })
    }))
}

fn view(entry: &DirEntry) -> Value {
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Dir => "dir",
        EntryKind::Symlink => "symlink",
        EntryKind::Other => "other",
    };
    json!({
        "name": entry.name,
        "kind": kind,
        "size": entry.size,
        "permissions": permissions(entry.mode),
        "modified": entry.modified,
    })
}

/// `rwxr-xr-x`, with s and t where `ls` has them.
fn permissions(mode: u32) -> String {
    let mut text = String::with_capacity(9);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_shown_as_in_ls() {
        for (mode, text) in [
            (0o755, "rwxr-xr-x"),
            (0o644, "rw-r--r--"),
            (0o000, "---------"),
            (0o4755, "rwsr-xr-x"),
            (0o2644, "rw-r-Sr--"),
            (0o1777, "rwxrwxrwt"),
            (0o100_600, "rw-------"),
        ] {
            assert_eq!(permissions(mode), text);
        }
    }

    #[test]
    fn directory_entry_has_the_contract_members() {
        let entry = DirEntry {
            name: ".x".to_owned(),
            kind: EntryKind::Symlink,
            size: 3,
            mode: 0o777,
            modified: 1_700_000_000,
        };
        let expected = json!({"name": ".x", "kind": "symlink", "size": 3, "permissions": "rwxrwxrwx",
            "modified": 1_700_000_000});
        assert_eq!(view(&entry), expected);
    }
}
