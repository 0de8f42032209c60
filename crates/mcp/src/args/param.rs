//! The traits of parameters, and the schema of a tool's arguments.

use serde_json::{Map, Value};

/// A parameter as clients see it.
pub(crate) trait Parameter: Sync {
    fn name(&self) -> &'static str;
    /// Its JSON Schema, description included.
    fn schema(&self) -> Map<String, Value>;
}

/// A parameter that can be parsed into a value of the domain.
pub(crate) trait Param: Parameter {
    type Output;
    /// All problems of the value; each is the end of a sentence that begins with the parameter's name.
    fn parse(&self, value: Value) -> Result<Self::Output, Vec<String>>;
    /// The problem that is reported when a required parameter is absent.
    fn when_missing(&self) -> String {
        "is missing".to_owned()
    }
}

/// Implements the part that all kinds share. `$self.schema_of()` gives the rest of the schema.
macro_rules! parameter {
    ($kind:ident $(<$generic:ident $(: $first:ident $(+ $more:ident)*)?>)?) => {
        impl $(<$generic: $($first $(+ $more)* +)? 'static>)? Parameter for $kind $(<$generic>)? {
            fn name(&self) -> &'static str {
                self.name
            }

            fn schema(&self) -> Map<String, Value> {
                let Value::Object(mut schema) = self.schema_of() else { return Map::new() };
                schema.insert("description".to_owned(), self.about.into());
                schema
            }
        }
    };
}

pub(super) use parameter;

/// The role of a parameter in one tool.
#[derive(Clone, Copy)]
pub(crate) enum Slot {
    Required(&'static dyn Parameter),
    Optional(&'static dyn Parameter),
    /// The workspace a tool works on: required, except in a profile where it may be left out.
    Target(&'static dyn Parameter),
    /// Another name for one of the others: accepted, because clients mix them up, but not listed.
    Alias(&'static dyn Parameter),
}

impl Slot {
    pub(crate) fn parameter(&self) -> &'static dyn Parameter {
        match self {
            Self::Required(parameter)
            | Self::Optional(parameter)
            | Self::Target(parameter)
            | Self::Alias(parameter) => *parameter,
        }
    }

    pub(crate) fn is_listed(&self) -> bool {
        match self {
            Self::Required(_) | Self::Optional(_) | Self::Target(_) => true,
            Self::Alias(_) => false,
        }
    }

    pub(crate) fn is_required(&self, target_may_be_left_out: bool) -> bool {
        match self {
            Self::Required(_) => true,
            Self::Optional(_) | Self::Alias(_) => false,
            Self::Target(_) => !target_may_be_left_out,
        }
    }
}

/// The JSON Schema of a tool's arguments.
pub(crate) fn input_schema(slots: &[Slot], target_may_be_left_out: bool) -> Map<String, Value> {
    let properties: Map<String, Value> = slots
        .iter()
        .filter(|slot| slot.is_listed())
        .map(|slot| {
            let mut schema = slot.parameter().schema();
            if matches!(slot, Slot::Target(_)) && target_may_be_left_out {
                let about = "Name or UUID. Optional while you own exactly one.";
                schema.insert("description".to_owned(), about.into());
            }
            (slot.parameter().name().to_owned(), schema.into())
        })
        .collect();
    let required: Vec<Value> = slots
        .iter()
        .filter(|slot| slot.is_required(target_may_be_left_out))
        .map(|slot| slot.parameter().name().into())
        .collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema.insert("additionalProperties".to_owned(), false.into());
    schema
}
