//! Parameters of calls that are about several workspaces at once.

use agentiso_core::names::WorkspaceRef;
use serde_json::{Map, Value, json};

use super::names::Workspace;
use super::param::{Param, Parameter, parameter};
use super::values::Text;
use super::words::describe;

/// A list of workspaces, each by name or UUID.
pub(crate) struct Workspaces {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) max_items: usize,
}

impl Workspaces {
    const fn one(&self) -> Workspace {
        Workspace { name: self.name, about: self.about }
    }

    fn schema_of(&self) -> Value {
        let mut items = self.one().schema();
        items.remove("description");
        json!({ "type": "array", "items": items, "minItems": 1, "maxItems": self.max_items })
    }
}

parameter!(Workspaces);

impl Param for Workspaces {
    type Output = Vec<WorkspaceRef>;

    fn parse(&self, value: Value) -> Result<Vec<WorkspaceRef>, Vec<String>> {
        let Value::Array(items) = value else {
            return Err(vec![format!("must be a list of workspaces, not {}", describe(&value))]);
        };
        if items.is_empty() {
            return Err(vec!["must not be empty; workspace_list shows what there is".to_owned()]);
        }
        if items.len() > self.max_items {
            return Err(vec![format!("has {} entries; at most {} are allowed", items.len(), self.max_items)]);
        }
        each(items, |item| self.one().parse(item))
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
pub(crate) enum Given {
    ForAll(String),
    ForEach(Vec<String>),
}

impl Commands {
    const fn one(&self) -> Text {
        Text { name: self.name, about: self.about, min: 1, max: self.max, nul: false }
    }

    fn schema_of(&self) -> Value {
        let text = json!({ "type": "string", "minLength": 1 });
        json!({ "anyOf": [text, { "type": "array", "items": text, "minItems": 1, "maxItems": self.max_items }] })
    }
}

parameter!(Commands);

impl Param for Commands {
    type Output = Given;

    fn parse(&self, value: Value) -> Result<Given, Vec<String>> {
        match value {
            Value::String(_) => self.one().parse(value).map(Given::ForAll),
            Value::Array(items) if items.is_empty() => Err(vec!["must not be empty".to_owned()]),
            Value::Array(items) => {
                if items.len() > self.max_items {
                    let problem =
                        format!("has {} entries; at most {} are allowed", items.len(), self.max_items);
                    return Err(vec![problem]);
                }
                each(items, |item| self.one().parse(item)).map(Given::ForEach)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Err(vec![format!("must be a command or a list of commands, not {}", describe(&value))])
            }
        }
    }
}

/// Reads every item and reports the problems of all, each with its number.
fn each<T>(
    items: Vec<Value>,
    parse: impl Fn(Value) -> Result<T, Vec<String>>,
) -> Result<Vec<T>, Vec<String>> {
    let mut read = Vec::with_capacity(items.len());
    let mut problems = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        match parse(item) {
            Ok(value) => read.push(value),
            Err(found) => problems.extend(found.into_iter().map(|problem| format!("[{index}] {problem}"))),
        }
    }
    if problems.is_empty() { Ok(read) } else { Err(problems) }
}
