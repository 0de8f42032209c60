//! Parameters that hold plain values: numbers, booleans, text, words, permissions, variables.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use agentiso_core::env::{self, EnvError};
use agentiso_core::suggest::nearest;
use serde_json::{Map, Value, json};

use super::lists::{all, spaced};
use super::param::{Param, Parameter, parameter};
use super::words::{describe, echo, kind, string};

/// A number of a named unit within bounds.
pub(crate) struct Integer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) default: Option<u64>,
}

impl Integer {
    /// No fixed bound: the configuration has one, and its refusal names it.
    pub(crate) const OPEN: u64 = u32::MAX as u64;

    pub(crate) const fn new(name: &'static str, about: &'static str, bounds: RangeInclusive<u64>) -> Self {
        Self { name, about, min: *bounds.start(), max: *bounds.end(), default: None }
    }

    pub(crate) const fn default(self, default: u64) -> Self {
        Self { default: Some(default), ..self }
    }

    fn schema_of(&self) -> Value {
        let mut schema = json!({ "type": "integer", "minimum": self.min });
        if self.max != Self::OPEN {
            schema["maximum"] = self.max.into();
        }
        if let Some(default) = self.default {
            schema["default"] = default.into();
        }
        schema
    }

    fn refuse(&self, found: &str) -> Vec<String> {
        if self.max == Self::OPEN {
            vec![format!("must be an integer of at least {}, not {found}", self.min)]
        } else {
            vec![format!("must be an integer between {} and {}, not {found}", self.min, self.max)]
        }
    }
}

parameter!(Integer);

impl Param for Integer {
    type Output = u64;

    fn parse(&self, value: Value) -> Result<u64, Vec<String>> {
        let number = match &value {
            Value::Number(number) => number,
            Value::String(text) if text.parse::<f64>().is_ok() => {
                return Err(self.refuse(&format!("the string {value} (leave the quotes out)")));
            }
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(self.refuse(&describe(&value)));
            }
        };
        let whole = number.as_u64().or_else(|| number.as_f64().and_then(whole_number));
        whole.filter(|n| (self.min..=self.max).contains(n)).ok_or_else(|| self.refuse(&number.to_string()))
    }
}

/// The integer that a float stands for, if it is small enough to be read from JSON without rounding.
fn whole_number(float: f64) -> Option<u64> {
    const EXACT: f64 = 1e14;
    ((0.0..EXACT).contains(&float) && float.fract() == 0.0).then_some(float as u64)
}

pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) default: Option<bool>,
}

impl Flag {
    pub(crate) const fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about, default: None }
    }

    pub(crate) const fn default(self, default: bool) -> Self {
        Self { default: Some(default), ..self }
    }

    fn schema_of(&self) -> Value {
        match self.default {
            Some(default) => json!({ "type": "boolean", "default": default }),
            None => json!({ "type": "boolean" }),
        }
    }
}

parameter!(Flag);

impl Param for Flag {
    type Output = bool;

    fn parse(&self, value: Value) -> Result<bool, Vec<String>> {
        value.as_bool().ok_or_else(|| vec![format!("must be true or false, not {}", describe(&value))])
    }
}

/// Any text up to a length in bytes. `min` is 0 or 1: whether it may be empty.
pub(crate) struct Text {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) min: usize,
    pub(crate) max: usize,
    /// Whether a NUL byte may occur: a file's content may hold one, a command cannot.
    pub(crate) nul: bool,
}

impl Text {
    /// A text that is not empty and has no NUL byte.
    pub(crate) const fn new(name: &'static str, about: &'static str, max: usize) -> Self {
        Self { name, about, min: 1, max, nul: false }
    }

    fn schema_of(&self) -> Value {
        // The schema does not say that most texts must not be empty: it is obvious, and every client pays for the list.
        json!({ "type": "string" })
    }
}

parameter!(Text);

impl Param for Text {
    type Output = String;

    fn parse(&self, value: Value) -> Result<String, Vec<String>> {
        let text = string(value)?;
        if text.len() < self.min {
            return Err(vec!["must not be empty".to_owned()]);
        }
        if text.len() > self.max {
            return Err(vec![format!("has {} bytes; at most {} are allowed", text.len(), self.max)]);
        }
        if !self.nul && text.contains('\0') {
            return Err(vec!["must not contain NUL bytes".to_owned()]);
        }
        Ok(text)
    }
}

/// A list of texts, none of them empty, none with a NUL byte.
pub(crate) struct Texts {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) max_items: usize,
    /// Bytes of each.
    pub(crate) max: usize,
}

impl Texts {
    fn schema_of(&self) -> Value {
        json!({ "type": "array", "items": { "type": "string" }, "maxItems": self.max_items })
    }
}

parameter!(Texts);

impl Param for Texts {
    type Output = Vec<String>;

    fn parse(&self, value: Value) -> Result<Vec<String>, Vec<String>> {
        let Value::Array(items) = value else {
            return Err(vec![format!("must be a list of strings, not {}", describe(&value))]);
        };
        if items.len() > self.max_items {
            let problem = format!("has {} entries; at most {} are allowed", items.len(), self.max_items);
            return Err(vec![problem]);
        }
        let one = Text::new(self.name, self.about, self.max);
        all(items, |item| one.parse(item).map_err(spaced))
    }
}

/// One of a few words.
pub(crate) struct Choice<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) words: &'static [(&'static str, T)],
    pub(crate) default: Option<&'static str>,
    /// The value of any other word; `None` if other words are errors.
    pub(crate) otherwise: Option<T>,
}

impl<T: Copy> Choice<T> {
    pub(crate) const fn new(
        name: &'static str,
        about: &'static str,
        words: &'static [(&'static str, T)],
    ) -> Self {
        Self { name, about, words, default: None, otherwise: None }
    }

    pub(crate) const fn default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    fn listed(&self) -> String {
        self.words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
    }

    fn schema_of(&self) -> Value {
        let words: Vec<&str> = self.words.iter().map(|(word, _)| *word).collect();
        let mut schema = json!({ "type": "string", "enum": words });
        if let Some(default) = self.default {
            schema["default"] = default.into();
        }
        schema
    }
}

parameter!(Choice<T: Copy + Sync>);

impl<T: Copy + Sync + 'static> Param for Choice<T> {
    type Output = T;

    fn parse(&self, value: Value) -> Result<T, Vec<String>> {
        let text = string(value)?;
        let known = self.words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        known.or(self.otherwise).ok_or_else(|| {
            let words = self.words.iter().map(|(word, _)| *word);
            let near = nearest(&text, words).map(|word| format!("; did you mean {word:?}?"));
            vec![format!(
                "must be one of {}, not {:?}{}",
                self.listed(),
                echo(&text),
                near.unwrap_or_default()
            )]
        })
    }

    fn when_missing(&self) -> String {
        format!("is missing; it must be one of {}", self.listed())
    }
}

/// Permission bits in octal.
pub(crate) struct FileMode {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) default: &'static str,
}

impl FileMode {
    fn schema_of(&self) -> Value {
        json!({ "type": "string", "pattern": "^(0o?)?[0-7]{1,4}$", "default": self.default })
    }
}

parameter!(FileMode);

impl Param for FileMode {
    type Output = u32;

    fn parse(&self, value: Value) -> Result<u32, Vec<String>> {
        let wrong = |found: &str| {
            vec![format!(
                "must be an octal mode in quotes such as \"0644\", \"755\" or \"0o600\", not {found}"
            )]
        };
        let Value::String(text) = &value else { return Err(wrong(&describe(&value))) };
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let octal = (1..=5).contains(&digits.len()) && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
        octal
            .then(|| u32::from_str_radix(digits, 8).ok())
            .flatten()
            .filter(|mode| *mode <= 0o7777)
            .ok_or_else(|| wrong(&describe(&value)))
    }
}

/// Environment variables of one command. Problems never repeat values, because they may be secrets.
pub(crate) struct Env {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

impl Env {
    fn schema_of(&self) -> Value {
        json!({ "type": "object", "additionalProperties": { "type": "string" } })
    }
}

parameter!(Env);

impl Param for Env {
    type Output = BTreeMap<String, String>;

    fn parse(&self, value: Value) -> Result<BTreeMap<String, String>, Vec<String>> {
        let Value::Object(object) = value else {
            return Err(vec![format!(
                "must be an object of strings such as {{\"CI\": \"1\"}}, not {}",
                kind(&value)
            )]);
        };
        if object.len() > env::MAX_VARIABLES {
            return Err(vec![EnvError::TooMany(object.len()).to_string()]);
        }
        let mut vars = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, value) in object {
            let Value::String(text) = value else {
                problems.push(format!(
                    "has {} as value of {:?}; values must be strings",
                    kind(&value),
                    echo(&name)
                ));
                continue;
            };
            match env::check([(name.as_str(), text.as_str())].into_iter()) {
                Ok(()) => {
                    vars.insert(name, text);
                }
                Err(problem) => problems.push(format!("cannot be used: {problem}")),
            }
        }
        if problems.is_empty() { Ok(vars) } else { Err(problems) }
    }
}
