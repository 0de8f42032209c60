//! Executes an action of `vault` and builds its answer.

use agentiso_vault::{
    FolderPath, MAX_HITS, NotePath, Pattern, Query, Replacement, Vault, VaultError, frontmatter,
};
use serde_json::{Value, json};

use super::budget::{self, MAX_SHOWN, MAX_TEXT, fitting};
use super::params::Format;
use super::work::{FrontmatterWork, Search, TagWork, Work};
use crate::answer::Answer;

/// Blocks, so it must run on a thread that may block.
pub(super) fn run(vault: &Vault, work: Work) -> Result<Answer, VaultError> {
    match work {
        Work::Read { path, format, offset } => read(vault, &path, format, offset),
        Work::Write { path, content, mode } => {
            let created = vault.write(&path, &content, mode)?;
            let done = if created { "created" } else { "written" };
            let text = format!("Note {path} {done} ({} bytes of content given).", content.len());
            Ok(Answer::text(text, json!({ "path": path.to_string(), "created": created })))
        }
        Work::Search(search) => find(vault, search),
        Work::List { folder, recursive } => list(vault, &folder, recursive),
        Work::Delete(path) => {
            vault.delete(&path)?;
            let structured = json!({ "path": path.to_string(), "deleted": true });
            Ok(Answer::text(format!("Note {path} deleted."), structured))
        }
        Work::Frontmatter { path, action } => keys(vault, &path, action),
        Work::Tags { path, action } => tags(vault, &path, action),
        Work::Replace { path, old, new, regex } => {
            let replacement = match regex {
                true => Replacement::expression(&old, &new)?,
                false => Replacement::plain(&old, &new),
            };
            let replacements = vault.replace(&path, &replacement)?;
            Ok(Answer::json(json!({ "path": path.to_string(), "replacements": replacements })))
        }
        Work::Move { path, new_path, overwrite } => {
            vault.rename(&path, &new_path, overwrite)?;
            Ok(Answer::json(json!({ "moved": true, "from": path.to_string(), "to": new_path.to_string() })))
        }
        Work::BatchRead { paths, content, frontmatter: keys } => Ok(batch(vault, &paths, content, keys)),
        Work::Stats { recent_count } => {
            let stats = vault.stats(recent_count)?;
            let answer = Answer::json(json!(stats));
            Ok(if stats.complete { answer } else { answer.with_note(OUT_OF_TIME.to_owned()) })
        }
    }
}

const OUT_OF_TIME: &str = "Time ran out before all notes were read.";

fn read(vault: &Vault, path: &NotePath, format: Format, offset: usize) -> Result<Answer, VaultError> {
    let text = vault.read(path)?;
    let (begin, shown) = budget::part(&text, offset, MAX_TEXT);
    let mut structured = json!({ "path": path.to_string(), "content": shown, "size": text.len() });
    let answer = match format {
        Format::Markdown => Answer::text(shown.to_owned(), structured),
        Format::Json => {
            add_frontmatter(&mut structured, &text, MAX_TEXT / 4);
            Answer::json(structured)
        }
    };
    let end = begin + shown.len();
    Ok(match end < text.len() {
        false => answer,
        true => answer.with_note(format!(
            "[TRUNCATED {} bytes in all, bytes {begin} to {end} shown; read on with offset {end}]",
            text.len()
        )),
    })
}

/// Adds the frontmatter as JSON: `null` if there is none, and an error text if it cannot be parsed.
fn add_frontmatter(note: &mut Value, text: &str, most: usize) {
    match frontmatter::read(text) {
        Ok(Some(map)) if json!(map).to_string().len() > most => {
            note["frontmatter"] = Value::Null;
            note["frontmatter_error"] = "too long to show; read the note as markdown".into();
        }
        Ok(map) => note["frontmatter"] = json!(map),
        Err(problem) => {
            note["frontmatter"] = Value::Null;
            note["frontmatter_error"] = problem.into();
        }
    }
}

fn find(vault: &Vault, search: Search) -> Result<Answer, VaultError> {
    let pattern = match search.regex {
        true => Pattern::expression(&search.query)?,
        false => Pattern::plain(&search.query),
    };
    let max_hits = if search.max_results == 0 { MAX_HITS } else { search.max_results };
    let found = vault.search(&Query { pattern, prefix: search.prefix, tag: search.tag, max_hits })?;
    let (results, _) = fitting(found.hits.iter().map(|hit| json!(hit)).collect());
    let hidden = found.total - results.len() as u64;
    let answer = json!({
        "query": search.query, "result_count": results.len(), "results": results, "total_matches": found.total,
    });
    let mut notes = Vec::new();
    if hidden > 0 {
        notes.push(format!(
            "{hidden} more matching lines are not shown; raise max_results, or narrow the search with path_prefix or tag."
        ));
    }
    if found.skipped > 0 {
        notes.push(format!("{} files were skipped: too large or unreadable.", found.skipped));
    }
    if !found.complete {
        notes.push(OUT_OF_TIME.to_owned());
    }
    Ok(with_notes(Answer::json(answer), &notes))
}

fn list(vault: &Vault, folder: &FolderPath, recursive: bool) -> Result<Answer, VaultError> {
    let listing = vault.list(folder, recursive)?;
    let count = listing.entries.len();
    let (entries, hidden) = fitting(listing.entries.iter().map(|entry| json!(entry)).collect());
    let answer =
        json!({ "path": folder.as_str(), "recursive": recursive, "count": count, "entries": entries });
    let mut notes = Vec::new();
    if hidden > 0 {
        notes.push(format!("{hidden} more entries are counted but not shown; list a subfolder."));
    }
    if !listing.complete {
        notes.push(OUT_OF_TIME.to_owned());
    }
    Ok(with_notes(Answer::json(answer), &notes))
}

fn with_notes(answer: Answer, notes: &[String]) -> Answer {
    if notes.is_empty() { answer } else { answer.with_note(notes.join(" ")) }
}

fn keys(vault: &Vault, path: &NotePath, action: FrontmatterWork) -> Result<Answer, VaultError> {
    match action {
        FrontmatterWork::Get { key } => {
            let map = vault.frontmatter(path)?;
            let mut answer = json!({ "path": path.to_string(), "frontmatter": map });
            if let Some(key) = key {
                answer["value"] = map.and_then(|map| map.get(&key).cloned()).unwrap_or_default();
                answer["key"] = key.into();
            }
            if answer.to_string().len() > MAX_SHOWN {
                let size = answer.to_string().len() as u64;
                return Err(VaultError::TooLarge { path: path.to_string(), size, max: MAX_SHOWN as u64 });
            }
            Ok(Answer::json(answer))
        }
        FrontmatterWork::Set { key, value } => {
            vault.change_frontmatter(path, &[(&key, Some(value))])?;
            let text = format!("Frontmatter key {key:?} of {path} set.");
            Ok(Answer::text(text, json!({ "path": path.to_string(), "key": key })))
        }
        FrontmatterWork::Delete { key } => {
            let deleted = vault.change_frontmatter(path, &[(&key, None)])?;
            let text = match deleted {
                true => format!("Frontmatter key {key:?} of {path} deleted."),
                false => format!("Frontmatter of {path} has no key {key:?}; nothing was deleted."),
            };
            Ok(Answer::text(text, json!({ "path": path.to_string(), "key": key, "deleted": deleted })))
        }
    }
}

fn tags(vault: &Vault, path: &NotePath, action: TagWork) -> Result<Answer, VaultError> {
    let (text, changed) = match action {
        TagWork::List => {
            let (tags, hidden) = fitting(vault.tags(path)?.into_iter().map(Value::from).collect());
            let answer = Answer::json(json!({ "path": path.to_string(), "tags": tags }));
            let more = format!("{hidden} more tags are not shown.");
            return Ok(if hidden > 0 { answer.with_note(more) } else { answer });
        }
        TagWork::Add(tag) => match vault.add_tag(path, &tag)? {
            true => (format!("Tag {:?} added to {path}.", tag.as_str()), true),
            false => (format!("{path} has tag {:?} already.", tag.as_str()), false),
        },
        TagWork::Remove(tag) => match vault.remove_tag(path, &tag)? {
            true => (format!("Tag {:?} removed from {path}.", tag.as_str()), true),
            false => (
                format!("The frontmatter of {path} has no tag {:?}; nothing was removed.", tag.as_str()),
                false,
            ),
        },
    };
    Ok(Answer::text(text, json!({ "path": path.to_string(), "changed": changed })))
}

/// Reads each note by itself: one that cannot be read has an error, and the others are read.
fn batch(vault: &Vault, paths: &[String], with_content: bool, with_frontmatter: bool) -> Answer {
    let room = MAX_TEXT / paths.len().max(1);
    let (mut notes, mut cut) = (Vec::new(), Vec::new());
    for path in paths {
        let mut note = json!({ "path": path });
        let parsed =
            NotePath::parse(path).map_err(|problem| VaultError::Path { path: path.clone(), problem });
        match parsed.and_then(|path| vault.read(&path)) {
            Ok(text) => {
                let (_, shown) = budget::part(&text, 0, room);
                if with_content {
                    note["content"] = shown.into();
                }
                if with_content && shown.len() < text.len() {
                    note["size"] = text.len().into();
                    cut.push(path.as_str());
                }
                if with_frontmatter {
                    add_frontmatter(&mut note, &text, room / 4);
                }
            }
            Err(error) => note["error"] = error.to_string().into(),
        }
        notes.push(note);
    }
    let answer = Answer::array("notes", notes);
    match cut.as_slice() {
        [] => answer,
        cut => answer
            .with_note(format!("Only the beginning is shown of {}; use read for the rest.", cut.join(", "))),
    }
}
