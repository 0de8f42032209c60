//! The parameters of `vault`. All are parsed before the action decides which of them it needs.

use agentiso_vault::{MAX_NOTE, MAX_OLD, MAX_PATH_LEN};
use serde_json::Value;

use crate::args::{Any, Choice, Flag, Integer, Reader, Slot, Text, Texts};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write,
    Search,
    List,
    Delete,
    Frontmatter,
    Tags,
    Replace,
    Move,
    BatchRead,
    Stats,
}

pub(super) const ACTION: Choice<Action> = Choice {
    name: "action",
    about: "What to do.",
    words: &[
        ("read", Action::Read),
        ("write", Action::Write),
        ("search", Action::Search),
        ("list", Action::List),
        ("delete", Action::Delete),
        ("frontmatter", Action::Frontmatter),
        ("tags", Action::Tags),
        ("replace", Action::Replace),
        ("move", Action::Move),
        ("batch_read", Action::BatchRead),
        ("stats", Action::Stats),
    ],
    default: None,
    otherwise: None,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Markdown,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Get,
    Set,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagAction {
    List,
    Add,
    Remove,
}

/// The most notes of one batch.
pub(super) const MAX_BATCH: usize = 10;

/// Four bytes for each of the characters that a query may have.
const MAX_QUERY_BYTES: usize = 4 * agentiso_vault::MAX_QUERY;

const MAX_KEY: usize = 200;

pub(super) const PATH: Text =
    Text { min: 0, ..text("path", "Note; for list and search a folder.", MAX_PATH_LEN) };
pub(super) const CONTENT: Text =
    Text { min: 0, nul: true, ..text("content", "write: the text.", MAX_NOTE as usize) };
const MODE: Choice<agentiso_vault::WriteMode> = Choice {
    name: "mode",
    about: "write: prepend inserts after frontmatter.",
    words: &[
        ("overwrite", agentiso_vault::WriteMode::Overwrite),
        ("append", agentiso_vault::WriteMode::Append),
        ("prepend", agentiso_vault::WriteMode::Prepend),
    ],
    default: Some("overwrite"),
    otherwise: None,
};
const FORMAT: Choice<Format> = Choice {
    name: "format",
    about: "read: json adds parsed frontmatter.",
    words: &[("markdown", Format::Markdown), ("json", Format::Json)],
    default: Some("markdown"),
    otherwise: None,
};
const OFFSET: Integer =
    Integer { name: "offset", about: "read: byte to start at.", min: 0, max: MAX_NOTE, default: Some(0) };
pub(super) const QUERY: Text = text("query", "search: text in a line, case-sensitive.", MAX_QUERY_BYTES);
const REGEX: Flag =
    Flag { name: "regex", about: "search, replace: a regular expression.", default: Some(false) };
pub(super) const PATH_PREFIX: Text =
    Text { min: 0, ..text("path_prefix", "search, list: folder to look in.", MAX_PATH_LEN) };
pub(super) const TAG: Text = text("tag", "tags: to add or remove. search: only notes with it.", 256);
const MAX_RESULTS: Integer = Integer {
    name: "max_results",
    about: "search: 0 for all that fit.",
    min: 0,
    max: Integer::OPEN,
    default: Some(20),
};
const RECURSIVE: Flag = Flag { name: "recursive", about: "list: include subfolders.", default: Some(false) };
pub(super) const CONFIRM: Flag = Flag { name: "confirm", about: "delete: must be true.", default: None };
pub(super) const KEY_ACTION: Choice<KeyAction> = Choice {
    name: "frontmatter_action",
    about: "Required for frontmatter.",
    words: &[("get", KeyAction::Get), ("set", KeyAction::Set), ("delete", KeyAction::Delete)],
    default: None,
    otherwise: None,
};
pub(super) const KEY: Text = text("key", "frontmatter: the key.", MAX_KEY);
pub(super) const VALUE: Any = Any { name: "value", about: "frontmatter set: any JSON value." };
pub(super) const TAGS_ACTION: Choice<TagAction> = Choice {
    name: "tags_action",
    about: "Required for tags.",
    words: &[("list", TagAction::List), ("add", TagAction::Add), ("remove", TagAction::Remove)],
    default: None,
    otherwise: None,
};
pub(super) const OLD_STRING: Text = text("old_string", "replace: text to find, everywhere.", MAX_OLD);
pub(super) const NEW_STRING: Text =
    Text { min: 0, nul: true, ..text("new_string", "replace: new text; $1 is a regex group.", 1024 * 1024) };
pub(super) const NEW_PATH: Text = text("new_path", "move: new path.", MAX_PATH_LEN);
const OVERWRITE: Flag =
    Flag { name: "overwrite", about: "move: replace an existing note.", default: Some(false) };
pub(super) const PATHS: Texts =
    Texts { name: "paths", about: "batch_read: the notes.", max_items: MAX_BATCH, max: MAX_PATH_LEN };
const INCLUDE_CONTENT: Flag =
    Flag { name: "include_content", about: "batch_read: the text.", default: Some(true) };
const INCLUDE_FRONTMATTER: Flag =
    Flag { name: "include_frontmatter", about: "batch_read: parsed frontmatter.", default: Some(true) };
const RECENT_COUNT: Integer = Integer {
    name: "recent_count",
    about: "stats: newest notes shown.",
    min: 0,
    max: 100,
    default: Some(10),
};

const fn text(name: &'static str, about: &'static str, max: usize) -> Text {
    Text { name, about, min: 1, max, nul: false }
}

pub(super) const SLOTS: &[Slot] = &[
    Slot::Required(&ACTION),
    Slot::Optional(&PATH),
    Slot::Optional(&CONTENT),
    Slot::Optional(&MODE),
    Slot::Optional(&FORMAT),
    Slot::Optional(&OFFSET),
    Slot::Optional(&QUERY),
    Slot::Optional(&REGEX),
    Slot::Optional(&PATH_PREFIX),
    Slot::Optional(&TAG),
    Slot::Optional(&MAX_RESULTS),
    Slot::Optional(&RECURSIVE),
    Slot::Optional(&CONFIRM),
    Slot::Optional(&KEY_ACTION),
    Slot::Optional(&KEY),
    Slot::Optional(&VALUE),
    Slot::Optional(&TAGS_ACTION),
    Slot::Optional(&OLD_STRING),
    Slot::Optional(&NEW_STRING),
    Slot::Optional(&NEW_PATH),
    Slot::Optional(&OVERWRITE),
    Slot::Optional(&PATHS),
    Slot::Optional(&INCLUDE_CONTENT),
    Slot::Optional(&INCLUDE_FRONTMATTER),
    Slot::Optional(&RECENT_COUNT),
];

/// A parsed argument: `None` if it is wrong, which has been reported, `Some(None)` if it was left out.
pub(super) type Maybe<T> = Option<Option<T>>;

pub(super) struct Arguments {
    pub(super) path: Maybe<String>,
    pub(super) content: Maybe<String>,
    pub(super) mode: Maybe<agentiso_vault::WriteMode>,
    pub(super) format: Maybe<Format>,
    pub(super) offset: Maybe<u64>,
    pub(super) query: Maybe<String>,
    pub(super) regex: Maybe<bool>,
    pub(super) path_prefix: Maybe<String>,
    pub(super) tag: Maybe<String>,
    pub(super) max_results: Maybe<u64>,
    pub(super) recursive: Maybe<bool>,
    pub(super) confirm: Maybe<bool>,
    pub(super) key_action: Maybe<KeyAction>,
    pub(super) key: Maybe<String>,
    pub(super) value: Maybe<Value>,
    pub(super) tags_action: Maybe<TagAction>,
    pub(super) old_string: Maybe<String>,
    pub(super) new_string: Maybe<String>,
    pub(super) new_path: Maybe<String>,
    pub(super) overwrite: Maybe<bool>,
    pub(super) paths: Maybe<Vec<String>>,
    pub(super) include_content: Maybe<bool>,
    pub(super) include_frontmatter: Maybe<bool>,
    pub(super) recent_count: Maybe<u64>,
}

pub(super) fn read(args: &mut Reader) -> Arguments {
    Arguments {
        path: args.optional(&PATH),
        content: args.optional(&CONTENT),
        mode: args.optional(&MODE),
        format: args.optional(&FORMAT),
        offset: args.optional(&OFFSET),
        query: args.optional(&QUERY),
        regex: args.optional(&REGEX),
        path_prefix: args.optional(&PATH_PREFIX),
        tag: args.optional(&TAG),
        max_results: args.optional(&MAX_RESULTS),
        recursive: args.optional(&RECURSIVE),
        confirm: args.optional(&CONFIRM),
        key_action: args.optional(&KEY_ACTION),
        key: args.optional(&KEY),
        value: args.optional(&VALUE),
        tags_action: args.optional(&TAGS_ACTION),
        old_string: args.optional(&OLD_STRING),
        new_string: args.optional(&NEW_STRING),
        new_path: args.optional(&NEW_PATH),
        overwrite: args.optional(&OVERWRITE),
        paths: args.optional(&PATHS),
        include_content: args.optional(&INCLUDE_CONTENT),
        include_frontmatter: args.optional(&INCLUDE_FRONTMATTER),
        recent_count: args.optional(&RECENT_COUNT),
    }
}
