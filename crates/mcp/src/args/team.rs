//! Parameters of `team`: roles. Problems describe the form of names, schemas do not, because every client pays for
//! schemas.

use agentiso_daemon::RoleRequest;
use serde_json::{Map, Value, json};

use super::lists::{each, field, object, unknown};
use super::names::ROLE_NAME;
use super::param::{Param, Parameter, parameter};
use super::values::{Text, Texts};

/// Bytes of a text about a member: every card and the ledger hold it.
const MAX_WORDS: usize = 4096;
const MAX_SKILLS: usize = 50;

/// The members that a team is to have.
pub(crate) struct Roles {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) max: usize,
}

impl Roles {
    fn schema_of(&self) -> Value {
        let item = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "role": { "type": "string" },
                "skills": { "type": "array", "items": { "type": "string" }, "maxItems": MAX_SKILLS },
                "description": { "type": "string" },
            },
            "required": ["name", "role"],
            "additionalProperties": false,
        });
        json!({ "type": "array", "items": item, "minItems": 1, "maxItems": self.max })
    }
}

parameter!(Roles);

impl Param for Roles {
    type Output = Vec<RoleRequest>;

    fn parse(&self, value: Value) -> Result<Vec<RoleRequest>, Vec<String>> {
        each(value, (1, self.max), "roles", role)
    }
}

fn role(value: Value) -> Result<RoleRequest, Vec<String>> {
    const fn words(name: &'static str) -> Text {
        Text { name, about: "", min: 0, max: MAX_WORDS, nul: false }
    }
    const SKILLS: Texts = Texts { name: "skills", about: "", max_items: MAX_SKILLS, max: MAX_WORDS };
    let mut object = object(value)?;
    let mut problems = Vec::new();
    let name = field(&mut object, &ROLE_NAME, &mut problems);
    let role = field(&mut object, &words("role"), &mut problems);
    let skills = field(&mut object, &SKILLS, &mut problems);
    let description = field(&mut object, &words("description"), &mut problems);
    unknown(&object, "name, role, skills and description", &mut problems);
    for (missing, what) in [(matches!(name, Some(None)), "name"), (matches!(role, Some(None)), "role")] {
        if missing {
            problems.push(format!(".{what} is missing"));
        }
    }
    let read = (|| {
        Some(RoleRequest {
            name: name??,
            role: role??,
            skills: skills?.unwrap_or_default(),
            description: description?,
        })
    })();
    read.filter(|_| problems.is_empty()).ok_or(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: Roles = Roles { name: "roles", about: "", max: 3 };

    #[test]
    fn role_problems_are_reported_with_their_position() {
        let good = json!([{"name": "a", "role": "x"}, {"name": "b", "role": "y", "skills": ["z"], "description": "d"}]);
        let roles = ROLES.parse(good).unwrap();
        assert_eq!((roles[1].name.as_str(), roles[1].skills[0].as_str()), ("b", "z"));
        let wrong = json!([{"name": "../x", "role": 5}, 5, {"name": "c", "skills": "z", "nmae": 1}]);
        let problems = ROLES.parse(wrong).unwrap_err();
        let begins = [
            "[0].name is no",
            "[0].role must be a string",
            "[1] must be an object",
            "[2].skills must be a list",
            "[2].nmae is unknown",
            "[2].role is missing",
        ];
        for (problem, begin) in problems.iter().zip(begins) {
            assert!(problem.starts_with(begin), "{problem} / {begin}");
        }
        assert_eq!(problems.len(), begins.len());
        assert!(ROLES.parse(json!([])).unwrap_err()[0].contains("1 to 3"));
    }
}
