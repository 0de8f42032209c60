//! Turns the parsed arguments of `vault` into one action with everything it needs, and reports missing ones.

use agentiso_vault::{FolderPath, MAX_QUERY, NotePath, Tag, WriteMode};
use serde_json::Value;

use super::params::{
    self, Action, Arguments, CONFIRM, CONTENT, Format, KEY, KEY_ACTION, KeyAction, Maybe, NEW_PATH,
    NEW_STRING, OLD_STRING, PATH, PATHS, QUERY, TAG, TAGS_ACTION, TagAction, VALUE,
};
use crate::args::{Param, Reader};

pub(super) enum Work {
    Read { path: NotePath, format: Format, offset: usize },
    Write { path: NotePath, content: String, mode: WriteMode },
    Search(Search),
    List { folder: FolderPath, recursive: bool },
    Delete(NotePath),
    Frontmatter { path: NotePath, action: FrontmatterWork },
    Tags { path: NotePath, action: TagWork },
    Replace { path: NotePath, old: String, new: String, regex: bool },
    Move { path: NotePath, new_path: NotePath, overwrite: bool },
    BatchRead { paths: Vec<String>, content: bool, frontmatter: bool },
    Stats { recent_count: usize },
}

pub(super) struct Search {
    pub(super) query: String,
    pub(super) regex: bool,
    pub(super) prefix: FolderPath,
    pub(super) tag: Option<Tag>,
    /// 0: as many as fit.
    pub(super) max_results: usize,
}

pub(super) enum FrontmatterWork {
    Get { key: Option<String> },
    Set { key: String, value: Value },
    Delete { key: String },
}

pub(super) enum TagWork {
    List,
    Add(Tag),
    Remove(Tag),
}

/// `None` if something is wrong or missing; every problem has then been reported.
pub(super) fn plan(action: Action, given: Arguments, args: &mut Reader) -> Option<Work> {
    let mut need = RequiredArgs { args, action: word(action) };
    match action {
        Action::Read => {
            let path = need.note(&PATH, given.path);
            Some(Work::Read {
                path: path?,
                format: given.format?.unwrap_or(Format::Markdown),
                offset: size(given.offset?.unwrap_or(0)),
            })
        }
        Action::Write => {
            let path = need.note(&PATH, given.path);
            let content = need.some(&CONTENT, given.content);
            let mode = given.mode?.unwrap_or(WriteMode::Overwrite);
            Some(Work::Write { path: path?, content: content?, mode })
        }
        Action::Search => search(given, &mut need).map(Work::Search),
        Action::List => {
            let folder = need.folder(given.path_prefix, given.path);
            Some(Work::List { folder: folder?, recursive: given.recursive?.unwrap_or(false) })
        }
        Action::Delete => {
            let path = need.note(&PATH, given.path);
            let confirm = need.some(&CONFIRM, given.confirm);
            if confirm == Some(false) {
                need.complain(CONFIRM.name, "must be true; deleting a note cannot be undone".to_owned());
            }
            path.filter(|_| confirm == Some(true)).map(Work::Delete)
        }
        Action::Frontmatter => frontmatter(given, &mut need),
        Action::Tags => tags(given, &mut need),
        Action::Replace => {
            let path = need.note(&PATH, given.path);
            let old = need.some(&OLD_STRING, given.old_string);
            let new = need.some(&NEW_STRING, given.new_string);
            let regex = given.regex?.unwrap_or(false);
            let old = if regex { need.short(OLD_STRING.name, old) } else { old };
            Some(Work::Replace { path: path?, old: old?, new: new?, regex })
        }
        Action::Move => {
            let path = need.note(&PATH, given.path);
            let new_path = need.note(&NEW_PATH, given.new_path);
            let overwrite = given.overwrite?.unwrap_or(false);
            Some(Work::Move { path: path?, new_path: new_path?, overwrite })
        }
        Action::BatchRead => {
            let paths = need.some(&PATHS, given.paths);
            Some(Work::BatchRead {
                paths: paths?,
                content: given.include_content?.unwrap_or(true),
                frontmatter: given.include_frontmatter?.unwrap_or(true),
            })
        }
        Action::Stats => Some(Work::Stats { recent_count: size(given.recent_count?.unwrap_or(10)) }),
    }
}

fn search(given: Arguments, need: &mut RequiredArgs<'_>) -> Option<Search> {
    let query = need.some(&QUERY, given.query);
    let query = need.short(QUERY.name, query);
    let prefix = need.folder(given.path_prefix, given.path);
    let tag = given.tag.map(|tag| tag.map(|tag| need.tag(&tag)));
    let tag = match tag? {
        Some(parsed) => Some(parsed?),
        None => None,
    };
    Some(Search {
        query: query?,
        regex: given.regex?.unwrap_or(false),
        prefix: prefix?,
        tag,
        max_results: size(given.max_results?.unwrap_or(20)),
    })
}

fn frontmatter(given: Arguments, need: &mut RequiredArgs<'_>) -> Option<Work> {
    let path = need.note(&PATH, given.path);
    let action = need.some(&KEY_ACTION, given.key_action);
    let action = match action? {
        KeyAction::Get => FrontmatterWork::Get { key: given.key? },
        KeyAction::Set => {
            let key = need.some(&KEY, given.key);
            let value = need.some(&VALUE, given.value);
            FrontmatterWork::Set { key: key?, value: value? }
        }
        KeyAction::Delete => FrontmatterWork::Delete { key: need.some(&KEY, given.key)? },
    };
    Some(Work::Frontmatter { path: path?, action })
}

fn tags(given: Arguments, need: &mut RequiredArgs<'_>) -> Option<Work> {
    let path = need.note(&PATH, given.path);
    let action = need.some(&TAGS_ACTION, given.tags_action);
    let action = match action? {
        TagAction::List => TagWork::List,
        TagAction::Add => TagWork::Add(need.some(&TAG, given.tag).and_then(|tag| need.tag(&tag))?),
        TagAction::Remove => TagWork::Remove(need.some(&TAG, given.tag).and_then(|tag| need.tag(&tag))?),
    };
    Some(Work::Tags { path: path?, action })
}

/// Takes the arguments that an action requires.
struct RequiredArgs<'a> {
    args: &'a mut Reader,
    action: &'static str,
}

impl RequiredArgs<'_> {
    fn complain(&mut self, argument: &str, problem: String) {
        self.args.complain(argument, problem);
    }

    fn some<P: Param>(&mut self, param: &P, given: Maybe<P::Output>) -> Option<P::Output> {
        let given = given?;
        if given.is_none() {
            let problem = format!("{} (required for action {})", param.when_missing(), self.action);
            self.complain(param.name(), problem);
        }
        given
    }

    fn note<P: Param<Output = String>>(&mut self, param: &P, given: Maybe<String>) -> Option<NotePath> {
        let text = self.some(param, given)?;
        let parsed = NotePath::parse(&text);
        parsed.map_err(|problem| self.complain(param.name(), format!("cannot be used: {problem}"))).ok()
    }

    /// The folder that a list or search is limited to, from either of its arguments; the root if none is given.
    fn folder(&mut self, prefix: Maybe<String>, path: Maybe<String>) -> Option<FolderPath> {
        let (prefix, path) = (prefix?, path?);
        let name = if prefix.is_some() { params::PATH_PREFIX.name } else { PATH.name };
        let parsed = FolderPath::parse(&prefix.or(path).unwrap_or_default());
        parsed.map_err(|problem| self.complain(name, format!("cannot be used: {problem}"))).ok()
    }

    fn tag(&mut self, text: &str) -> Option<Tag> {
        Tag::parse(text).map_err(|problem| self.complain(TAG.name, format!("cannot be used: {problem}"))).ok()
    }

    /// Checks the length of a search text in characters.
    fn short(&mut self, name: &str, text: Option<String>) -> Option<String> {
        let count = text.as_ref()?.chars().count();
        if count > MAX_QUERY {
            self.complain(name, format!("has {count} characters; at most {MAX_QUERY} are allowed"));
        }
        text
    }
}

fn word(action: Action) -> &'static str {
    params::ACTION.words.iter().find(|(_, known)| *known == action).map_or("", |(word, _)| word)
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
