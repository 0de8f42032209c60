//! Names that people choose, parsed once. A value of one of these types is safe in a path, a command line,
//! QMP or a hostname file.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::WorkspaceId;

/// The longest workspace or image name that clients may use.
pub const MAX_NAME_LEN: usize = 128;

/// The longest prefix that leaves room for a dash and a number in a workspace's name.
pub const MAX_PREFIX_LEN: usize = MAX_NAME_LEN - 11;

/// The longest host name the kernel and DNS accept as one label.
const MAX_HOSTNAME_LEN: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    #[error("{what} must not be empty")]
    Empty { what: &'static str },
    #[error("{what} is {len} characters long; at most {max} are allowed")]
    TooLong { what: &'static str, len: usize, max: usize },
    #[error("{what} contains {bad:?}; only letters, digits, '.', '_' and '-' are allowed")]
    BadCharacter { what: &'static str, bad: char },
    #[error("{what} must not be {name:?}: it could be taken for a directory")]
    Dots { what: &'static str, name: String },
    #[error("{what} contains {bad:?}; only letters, digits and '-' are allowed")]
    BadLabelCharacter { what: &'static str, bad: char },
    #[error("{what} must not start or end with '-'")]
    OuterDash { what: &'static str },
    #[error("{what} must not start with '-': it would be taken for an option")]
    LeadingDash { what: &'static str },
}

fn check(what: &'static str, text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if let Some(bad) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        return Err(NameError::BadCharacter { what, bad });
    }
    if text.len() > MAX_NAME_LEN {
        return Err(NameError::TooLong { what, len: text.len(), max: MAX_NAME_LEN });
    }
    if text.chars().all(|c| c == '.') {
        return Err(NameError::Dots { what, name: text.to_owned() });
    }
    Ok(())
}

/// Implements the parsing, display and serde of one name type. The `check` function in scope defines its alphabet.
macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, |$text:ident| $extra:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn parse($text: &str) -> Result<Self, NameError> {
                check($what, $text)?;
                $extra?;
                Ok(Self($text.to_owned()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

pub(crate) use name_type;

name_type!(
    /// A workspace's name, unique in one daemon.
    WorkspaceName, "workspace name", |_text| Ok::<(), NameError>(())
);

name_type!(
    /// A base image's name. It is a directory name, so two dots in a row and a leading dash are refused.
    ImageName, "image name", |text| if text.contains("..") {
        Err(NameError::Dots { what: "image name", name: text.to_owned() })
    } else if text.starts_with('-') {
        Err(NameError::LeadingDash { what: "image name" })
    } else {
        Ok(())
    }
);

name_type!(
    /// A snapshot's name, unique in its workspace.
    SnapshotName, "snapshot name", |_text| Ok::<(), NameError>(())
);

name_type!(
    /// The common beginning of the names of several forks; `-1`, `-2` and so on follow.
    NamePrefix, "name prefix", |text| if text.len() > MAX_PREFIX_LEN {
        Err(NameError::TooLong { what: "name prefix", len: text.len(), max: MAX_PREFIX_LEN })
    } else {
        Ok(())
    }
);

/// The longest name of a task that leaves room for the name of its swarm in a workspace's name.
pub const MAX_TASK_LEN: usize = 64;

name_type!(
    /// A task of a swarm; part of its worker's name.
    TaskName, "task name", |text| if text.len() > MAX_TASK_LEN {
        Err(NameError::TooLong { what: "task name", len: text.len(), max: MAX_TASK_LEN })
    } else {
        Ok(())
    }
);

impl NamePrefix {
    /// The name of the fork with this number, counted from 1.
    pub fn numbered(&self, number: u32) -> WorkspaceName {
        WorkspaceName(format!("{}-{number}", self.0))
    }
}

impl WorkspaceName {
    /// The name of a fork for which none was given.
    pub fn default_for_fork(id: &WorkspaceId) -> Self {
        Self(format!("fork-{}", id.short()))
    }

    /// The name of a workspace for which none was given.
    pub fn default_for(id: &WorkspaceId) -> Self {
        Self(format!("ws-{}", id.short()))
    }

    /// A valid host name close to this name. Unlike names, host names hold no dots or underscores and are no longer
    /// than a DNS label.
    pub fn hostname(&self) -> String {
        let mut host: String = self
            .0
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        host.truncate(MAX_HOSTNAME_LEN);
        let trimmed = host.trim_matches('-');
        if trimmed.is_empty() { "workspace".to_owned() } else { trimmed.to_owned() }
    }
}

/// A client's reference to a workspace: text that parses as a UUID is an id, any other text is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceRef {
    Id(WorkspaceId),
    Name(String),
}

impl WorkspaceRef {
    pub fn parse(text: &str) -> Self {
        match text.parse() {
            Ok(id) => Self::Id(id),
            Err(_) => Self::Name(text.to_owned()),
        }
    }
}

impl fmt::Display for WorkspaceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_workspace_and_image_names_are_refused() {
        for bad in ["", ".", "..", "a/b", "a b", "a\n", "a\0", "ä", "\"", "a;b", &"x".repeat(129)] {
            assert!(WorkspaceName::parse(bad).is_err(), "{bad:?} was accepted");
        }
        for bad in ["a..b", "-rf", "../x"] {
            assert!(ImageName::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn name_of_128_characters_is_accepted() {
        assert!(WorkspaceName::parse(&"x".repeat(128)).is_ok());
    }

    proptest! {
        #[test]
        fn every_legal_name_gives_a_legal_hostname(name in "[A-Za-z0-9._-]{1,128}") {
            if let Ok(name) = WorkspaceName::parse(&name) {
                let host = name.hostname();
                prop_assert!((1..=63).contains(&host.len()));
                prop_assert!(host.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
                prop_assert!(!host.starts_with('-') && !host.ends_with('-'));
            }
        }
    }
}
