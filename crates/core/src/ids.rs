//! Identifiers of workspaces, snapshots and sessions. An id never changes and is never reused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Implements the text form of an id that is a UUID.
macro_rules! uuid_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_type!(
    /// The id of a workspace. It is never reused, unlike its name, which is free again after a destroy.
    WorkspaceId
);

uuid_type!(
    /// The id of a snapshot. Its name is unique in its workspace only, and free again after a delete.
    SnapshotId
);

impl WorkspaceId {
    pub fn as_uuid(&self) -> &Uuid {
        &self.0
    }

    /// The first eight hexadecimal digits: short enough for a socket path (108 bytes at most).
    pub fn short(&self) -> String {
        let mut text = self.0.simple().to_string();
        text.truncate(8);
        text
    }
}

/// The id of a client's session. It stays the owner of workspaces after the connection has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    pub fn random() -> Self {
        Self(format!("session-{}", Uuid::new_v4().simple()))
    }

    /// The one session that all commands of the CLI share.
    pub fn shell() -> Self {
        Self("shell".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_id_is_prefix_of_full_id() {
        let id = WorkspaceId::random();
        assert!(id.to_string().starts_with(&id.short()));
        assert_eq!(id.short().len(), 8);
    }

    #[test]
    fn workspace_id_survives_its_text_form() {
        let id = WorkspaceId::random();
        assert_eq!(id.to_string().parse::<WorkspaceId>().unwrap(), id);
    }
}
