//! Parameters that are lists of more than texts: workspaces, tasks, queries to the vault.

use agentiso_core::names::{MAX_TASK_LEN, WorkspaceRef};
use agentiso_daemon::{SwarmTask, VaultQuery, VaultQueryKind};
use serde_json::{Map, Value, json};

use super::names::{GuestFile, TASK_NAME, Workspace, name_schema};
use super::param::{Param, Parameter, parameter};
use super::values::{Choice, Env, Text};
use super::words::{describe, echo};

/// Parses each item; a problem begins with the index of its item.
pub(super) fn each<T>(
    value: Value,
    (min, max): (usize, usize),
    what: &str,
    parse: impl FnMut(Value) -> Result<T, Vec<String>>,
) -> Result<Vec<T>, Vec<String>> {
    let Value::Array(items) = value else {
        return Err(vec![format!("must be a list of {what}, not {}", describe(&value))]);
    };
    if !(min..=max).contains(&items.len()) {
        return Err(vec![format!("has {} entries; it must have {min} to {max}", items.len())]);
    }
    all(items, parse)
}

pub(super) fn all<T>(
    items: Vec<Value>,
    mut parse: impl FnMut(Value) -> Result<T, Vec<String>>,
) -> Result<Vec<T>, Vec<String>> {
    let (mut read, mut problems) = (Vec::with_capacity(items.len()), Vec::new());
    for (index, item) in items.into_iter().enumerate() {
        match parse(item) {
            Ok(item) => read.push(item),
            Err(found) => problems.extend(found.iter().map(|problem| format!("[{index}]{problem}"))),
        }
    }
    if problems.is_empty() { Ok(read) } else { Err(problems) }
}

/// Formats the problems of an item that is not an object.
pub(super) fn spaced(found: Vec<String>) -> Vec<String> {
    found.iter().map(|problem| format!(" {problem}")).collect()
}

/// Takes one field of an item that is an object.
pub(super) fn field<P: Param>(
    object: &mut Map<String, Value>,
    param: &P,
    problems: &mut Vec<String>,
) -> Option<Option<P::Output>> {
    let Some(value) = object.remove(param.name()).filter(|value| !value.is_null()) else { return Some(None) };
    match param.parse(value) {
        Ok(value) => Some(Some(value)),
        Err(found) => {
            problems.extend(found.iter().map(|problem| format!(".{} {problem}", param.name())));
            None
        }
    }
}

pub(super) fn object(value: Value) -> Result<Map<String, Value>, Vec<String>> {
    match value {
        Value::Object(object) => Ok(object),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Err(vec![format!(" must be an object, not {}", describe(&other))])
        }
    }
}

pub(super) fn unknown(object: &Map<String, Value>, known: &str, problems: &mut Vec<String>) {
    problems.extend(object.keys().map(|key| format!(".{} is unknown; the fields are {known}", echo(key))));
}

/// Several workspaces.
pub(crate) struct Workspaces {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) max: usize,
}

impl Workspaces {
    fn schema_of(&self) -> Value {
        json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": self.max })
    }
}

parameter!(Workspaces);

impl Param for Workspaces {
    type Output = Vec<WorkspaceRef>;

    fn parse(&self, value: Value) -> Result<Vec<WorkspaceRef>, Vec<String>> {
        let one = Workspace::new(self.name, self.about);
        each(value, (1, self.max), "workspaces", |item| one.parse(item).map_err(spaced))
    }
}

/// One command for all workspaces, or one for each.
pub(crate) struct Commands {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) max_items: usize,
    /// Bytes of each.
    pub(crate) max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandSet {
    ForAll(String),
    ForEach(Vec<String>),
}

impl Commands {
    const fn one(&self) -> Text {
        Text::new(self.name, self.about, self.max)
    }

    fn schema_of(&self) -> Value {
        let text = json!({ "type": "string" });
        json!({ "anyOf": [text, { "type": "array", "items": text, "minItems": 1, "maxItems": self.max_items }] })
    }
}

parameter!(Commands);

impl Param for Commands {
    type Output = CommandSet;

    fn parse(&self, value: Value) -> Result<CommandSet, Vec<String>> {
        match value {
            Value::String(_) => self.one().parse(value).map(CommandSet::ForAll),
            Value::Array(_) => {
                let one = |item| self.one().parse(item).map_err(spaced);
                each(value, (1, self.max_items), "commands", one).map(CommandSet::ForEach)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Err(vec![format!("must be a command or a list of commands, not {}", describe(&value))])
            }
        }
    }
}

/// The tasks of a swarm.
pub(crate) struct Tasks {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) max: usize,
    /// Bytes of a command.
    pub(crate) max_command: usize,
}

impl Tasks {
    fn schema_of(&self) -> Value {
        let item = json!({
            "type": "object",
            "properties": {
                "name": name_schema(MAX_TASK_LEN),
                "command": { "type": "string" },
                "workdir": { "type": "string", "pattern": "^/" },
                "env": { "type": "object", "additionalProperties": { "type": "string" } },
            },
            "required": ["name", "command"],
            "additionalProperties": false,
        });
        json!({ "type": "array", "items": item, "minItems": 1, "maxItems": self.max })
    }

    fn task(&self, value: Value) -> Result<SwarmTask, Vec<String>> {
        let mut object = object(value)?;
        let mut problems = Vec::new();
        let command = Text::new("command", "", self.max_command);
        let name = field(&mut object, &TASK_NAME, &mut problems);
        let command = field(&mut object, &command, &mut problems);
        let workdir = field(&mut object, &GuestFile::new("workdir", ""), &mut problems);
        let env = field(&mut object, &Env { name: "env", about: "" }, &mut problems);
        unknown(&object, "name, command, workdir and env", &mut problems);
        for (missing, what) in
            [(matches!(name, Some(None)), "name"), (matches!(command, Some(None)), "command")]
        {
            if missing {
                problems.push(format!(".{what} is missing"));
            }
        }
        let task = (|| {
            Some(SwarmTask {
                name: name??,
                command: command??,
                workdir: workdir?,
                env: env?.unwrap_or_default(),
                vault_queries: Vec::new(),
            })
        })();
        task.filter(|_| problems.is_empty()).ok_or(problems)
    }
}

parameter!(Tasks);

impl Param for Tasks {
    type Output = Vec<SwarmTask>;

    fn parse(&self, value: Value) -> Result<Vec<SwarmTask>, Vec<String>> {
        let tasks = each(value, (1, self.max), "tasks", |item| self.task(item))?;
        let mut problems = Vec::new();
        for (index, task) in tasks.iter().enumerate() {
            if tasks[..index].iter().any(|earlier| earlier.name == task.name) {
                problems.push(format!("[{index}].name {} is already used by another task", task.name));
            }
        }
        if problems.is_empty() { Ok(tasks) } else { Err(problems) }
    }
}

/// Queries to the vault.
pub(crate) struct VaultQueries {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) max: usize,
}

/// Bytes of a query, from the tool contract.
const MAX_QUERY: usize = 1024;

impl VaultQueries {
    fn schema_of(&self) -> Value {
        json!({ "type": "array", "items": { "type": "object" }, "maxItems": self.max })
    }
}

parameter!(VaultQueries);

impl Param for VaultQueries {
    type Output = Vec<VaultQuery>;

    fn parse(&self, value: Value) -> Result<Vec<VaultQuery>, Vec<String>> {
        const KIND: Choice<VaultQueryKind> =
            Choice::new("kind", "", &[("search", VaultQueryKind::Search), ("read", VaultQueryKind::Read)])
                .default("search");
        const QUERY: Text = Text::new("query", "", MAX_QUERY);
        let query = |item| {
            let mut object = object(item)?;
            let mut problems = Vec::new();
            let kind = field(&mut object, &KIND, &mut problems);
            let query = field(&mut object, &QUERY, &mut problems);
            if let Some(None) = query {
                problems.push(".query is missing".to_owned());
            }
            unknown(&object, "kind and query", &mut problems);
            let query = (|| Some(VaultQuery { kind: kind?.unwrap_or_default(), query: query?? }))();
            query.filter(|_| problems.is_empty()).ok_or(problems)
        };
        each(value, (0, self.max), "queries", query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASKS: Tasks = Tasks { name: "tasks", about: "", max: 3, max_command: 100 };
    const QUERIES: VaultQueries = VaultQueries { name: "vault_context", about: "", max: 2 };

    #[test]
    fn task_problems_are_reported_with_their_position() {
        let good = json!([{"name": "a", "command": "x"}, {"name": "b", "command": "y", "workdir": "/w", "env": {"A": "1"}}]);
        let tasks = TASKS.parse(good).unwrap();
        assert_eq!((tasks[1].name.as_str(), tasks[1].env["A"].as_str()), ("b", "1"));
        let wrong = json!([{"name": "../x", "command": ""}, 5, {"name": "c", "workdir": "w", "nmae": 1}]);
        let problems = TASKS.parse(wrong).unwrap_err();
        let begins = [
            "[0].name is no",
            "[0].command must not be empty",
            "[1] must be an object",
            "[2].workdir cannot",
            "[2].nmae is unknown",
            "[2].command is missing",
        ];
        for (problem, begin) in problems.iter().zip(begins) {
            assert!(problem.starts_with(begin), "{problem} / {begin}");
        }
        assert_eq!(problems.len(), begins.len());
        let twice = json!([{"name": "a", "command": "x"}, {"name": "a", "command": "y"}]);
        assert!(TASKS.parse(twice).unwrap_err()[0].contains("[1].name"));
        for count in [json!([]), json!([1, 2, 3, 4])] {
            assert!(TASKS.parse(count).unwrap_err()[0].contains("1 to 3"));
        }
    }

    #[test]
    fn vault_query_kind_defaults_to_search() {
        let queries = QUERIES.parse(json!([{"query": "x"}, {"kind": "read", "query": "a.md"}])).unwrap();
        let kinds: Vec<_> = queries.iter().map(|query| query.kind).collect();
        assert_eq!(kinds, [VaultQueryKind::Search, VaultQueryKind::Read]);
        assert_eq!(queries[1].query, "a.md");
        for wrong in [json!([{}]), json!([{"query": ""}]), json!([{"kind": "x", "query": "y"}]), json!("x")] {
            assert!(QUERIES.parse(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
