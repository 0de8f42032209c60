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

pub(super) const ACTION: Choice<Action> = Choice::new(
    "action",
    "What to do.",
    &[
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
);

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
    Text { min: 0, ..Text::new("path", "Note; for list and search a folder.", MAX_PATH_LEN) };
pub(super) const CONTENT: Text =
    Text { min: 0, nul: true, ..Text::new("content", "write: the text.", MAX_NOTE as usize) };
const MODE: Choice<agentiso_vault::WriteMode> = Choice::new(
    "mode",
    "write: prepend inserts after frontmatter.",
    &[
        ("overwrite", agentiso_vault::WriteMode::Overwrite),
        ("append", agentiso_vault::WriteMode::Append),
        ("prepend", agentiso_vault::WriteMode::Prepend),
    ],
)
.default("overwrite");
const FORMAT: Choice<Format> = Choice::new(
    "format",
    "read: json adds parsed frontmatter.",
    &[("markdown", Format::Markdown), ("json", Format::Json)],
)
.default("markdown");
const OFFSET: Integer = Integer::new("offset", "read: byte to start at.", 0..=MAX_NOTE).default(0);
pub(super) const QUERY: Text = Text::new("query", "search: text in a line, case-sensitive.", MAX_QUERY_BYTES);
const REGEX: Flag = Flag::new("regex", "search, replace: a regular expression.").default(false);
pub(super) const PATH_PREFIX: Text =
    Text { min: 0, ..Text::new("path_prefix", "search, list: folder to look in.", MAX_PATH_LEN) };
pub(super) const TAG: Text = Text::new("tag", "tags: to add or remove. search: only notes with it.", 256);
const MAX_RESULTS: Integer =
    Integer::new("max_results", "search: 0 for all that fit.", 0..=Integer::OPEN).default(20);
const RECURSIVE: Flag = Flag::new("recursive", "list: include subfolders.").default(false);
pub(super) const CONFIRM: Flag = Flag::new("confirm", "delete: must be true.");
pub(super) const KEY_ACTION: Choice<KeyAction> = Choice::new(
    "frontmatter_action",
    "Required for frontmatter.",
    &[("get", KeyAction::Get), ("set", KeyAction::Set), ("delete", KeyAction::Delete)],
);
pub(super) const KEY: Text = Text::new("key", "frontmatter: the key.", MAX_KEY);
pub(super) const VALUE: Any = Any { name: "value", about: "frontmatter set: any JSON value." };
pub(super) const TAGS_ACTION: Choice<TagAction> = Choice::new(
    "tags_action",
    "Required for tags.",
    &[("list", TagAction::List), ("add", TagAction::Add), ("remove", TagAction::Remove)],
);
pub(super) const OLD_STRING: Text = Text::new("old_string", "replace: text to find, everywhere.", MAX_OLD);
pub(super) const NEW_STRING: Text = Text {
    min: 0,
    nul: true,
    ..Text::new("new_string", "replace: new text; $1 is a regex group.", 1024 * 1024)
};
pub(super) const NEW_PATH: Text = Text::new("new_path", "move: new path.", MAX_PATH_LEN);
const OVERWRITE: Flag = Flag::new("overwrite", "move: replace an existing note.").default(false);
pub(super) const PATHS: Texts =
    Texts { name: "paths", about: "batch_read: the notes.", max_items: MAX_BATCH, max: MAX_PATH_LEN };
const INCLUDE_CONTENT: Flag = Flag::new("include_content", "batch_read: the text.").default(true);
const INCLUDE_FRONTMATTER: Flag =
    Flag::new("include_frontmatter", "batch_read: parsed frontmatter.").default(true);
const RECENT_COUNT: Integer = Integer::new("recent_count", "stats: newest notes shown.", 0..=100).default(10);

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
