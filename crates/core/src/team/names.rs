//! Names of teams and roles. They become directories of notes and parts of workspace names.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::{NameError, WorkspaceName, name_type};

/// The longest name of a team or a role.
const MAX_LABEL_LEN: usize = 64;

fn check(what: &'static str, text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if let Some(bad) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '-')) {
        return Err(NameError::BadLabelCharacter { what, bad });
    }
    if text.len() > MAX_LABEL_LEN {
        return Err(NameError::TooLong { what, len: text.len(), max: MAX_LABEL_LEN });
    }
    if text.starts_with('-') || text.ends_with('-') {
        return Err(NameError::OuterDash { what });
    }
    Ok(())
}

name_type!(
    /// A team's name, unique in one daemon.
    TeamName, "team name", |_text| Ok::<(), NameError>(())
);

name_type!(
    /// The name of a member in its team, unique there.
    RoleName, "role name", |_text| Ok::<(), NameError>(())
);

/// The characters of a team's and of a role's name that are kept in the name of a workspace. Two such parts, two dashes
/// and four digits fit into a workspace's name.
const MAX_PART: usize = 58;

impl TeamName {
    /// The name of a member's workspace. The digits make it unlikely that another workspace has the same name.
    pub fn member_workspace(&self, role: &RoleName, digits: u16) -> WorkspaceName {
        let cut = |text: &str| text[..text.len().min(MAX_PART)].to_owned();
        match WorkspaceName::parse(&format!("{}-{}-{digits:04x}", cut(&self.0), cut(&role.0))) {
            Ok(name) => name,
            Err(_) => unreachable!("two such parts, dashes and digits make a name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_team_and_role_names_are_refused() {
        for bad in ["", "-a", "a-", "a.b", "a_b", "../x", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert!(TeamName::parse(bad).is_err() && RoleName::parse(bad).is_err(), "{bad:?} was accepted");
        }
        assert!(TeamName::parse(&"x".repeat(64)).is_ok());
    }

    proptest! {
        #[test]
        fn every_team_and_role_make_a_workspace_name(
            team in "[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?",
            role in "[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?",
            digits: u16,
        ) {
            let (team, role) = (TeamName::parse(&team).unwrap(), RoleName::parse(&role).unwrap());
            let made = team.member_workspace(&role, digits);
            prop_assert!(WorkspaceName::parse(made.as_str()).is_ok());
        }
    }
}
