//! Parameters that say what a workspace may reach.

use agentiso_core::network::{NetworkPolicy, PolicyChange};
use serde_json::{Map, Value, json};

use super::lists::{all, spaced};
use super::param::{Param, Parameter, parameter};
use super::values::Integer;
use super::words::describe;

/// More ports than any client lists.
const MAX_PORTS: usize = 256;

/// A list of TCP ports.
pub(crate) struct Ports {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

impl Ports {
    fn schema_of(&self) -> Value {
        let items = json!({ "type": "integer", "minimum": 1, "maximum": u16::MAX });
        json!({ "type": "array", "items": items, "maxItems": MAX_PORTS })
    }
}

parameter!(Ports);

impl Param for Ports {
    type Output = Vec<i64>;

    fn parse(&self, value: Value) -> Result<Vec<i64>, Vec<String>> {
        let Value::Array(items) = value else {
            return Err(vec![format!("must be a list of ports, not {}", describe(&value))]);
        };
        if items.len() > MAX_PORTS {
            return Err(vec![format!("has {} entries; at most {MAX_PORTS} are allowed", items.len())]);
        }
        let one = Integer::new(self.name, self.about, 1..=u16::MAX.into());
        // At most the largest port, so nothing wraps.
        all(items, |item| one.parse(item).map(u64::cast_signed).map_err(spaced))
    }
}

/// A whole policy, or some fields of one.
pub(crate) struct Policy {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

impl Policy {
    fn schema_of(&self) -> Value {
        json!({ "type": "object" })
    }
}

parameter!(Policy);

impl Param for Policy {
    type Output = PolicyChange;

    fn parse(&self, value: Value) -> Result<PolicyChange, Vec<String>> {
        if !value.is_object() {
            return Err(vec![format!(
                "must be an object with fields of network_policy, not {}",
                describe(&value)
            )]);
        }
        let change: PolicyChange =
            serde_json::from_value(value).map_err(|error| vec![format!("is not a valid policy: {error}")])?;
        match change.apply_to(&NetworkPolicy::default()) {
            Ok(_) => Ok(change),
            Err(problems) => Err(problems.iter().map(|problem| format!(".{problem}")).collect()),
        }
    }
}
