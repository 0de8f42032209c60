//! A parameter that takes any JSON value.

use serde_json::{Map, Value, json};

use super::param::{Param, Parameter, parameter};

/// Any JSON value except `null`, which counts as left out.
pub(crate) struct Any {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

impl Any {
    fn schema_of(&self) -> Value {
        json!({})
    }
}

parameter!(Any);

impl Param for Any {
    type Output = Value;

    fn parse(&self, value: Value) -> Result<Value, Vec<String>> {
        Ok(value)
    }
}
