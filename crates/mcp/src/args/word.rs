//! Parameters that are one text each, parsed into a type of the domain.

use serde_json::{Map, Value, json};

use super::param::{Param, Parameter, parameter};
use super::words::string;

pub(crate) struct Word<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) default: Option<&'static str>,
    /// The JSON Schema of the text itself.
    pub(super) text: fn() -> Value,
    pub(super) parse: fn(&str) -> Result<T, String>,
}

impl<T> Word<T> {
    pub(super) const fn of(
        name: &'static str,
        about: &'static str,
        parse: fn(&str) -> Result<T, String>,
    ) -> Self {
        Self { name, about, default: None, text: || json!({ "type": "string" }), parse }
    }

    fn schema_of(&self) -> Value {
        let mut schema = (self.text)();
        if let Some(default) = self.default {
            schema["default"] = default.into();
        }
        schema
    }
}

parameter!(Word<T>);

impl<T> Param for Word<T> {
    type Output = T;

    fn parse(&self, value: Value) -> Result<T, Vec<String>> {
        (self.parse)(&string(value)?).map_err(|problem| vec![problem])
    }
}
