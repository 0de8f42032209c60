//! Answers the workers' questions from the notes, as one text.

use std::fmt;

use agentiso_vault::{Question, VaultError};
use serde::{Deserialize, Serialize};

use crate::session::Session;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VaultQueryKind {
    /// The first lines that match, with their surrounding lines.
    #[default]
    Search,
    /// A whole note, by its path.
    Read,
}

/// A question to the vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultQuery {
    #[serde(default)]
    pub kind: VaultQueryKind,
    pub query: String,
}

impl fmt::Display for VaultQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            VaultQueryKind::Search => "search",
            VaultQueryKind::Read => "read",
        };
        write!(f, "{kind} {}", self.query)
    }
}

impl From<VaultQuery> for Question {
    fn from(query: VaultQuery) -> Self {
        match query.kind {
            VaultQueryKind::Search => Self::Search(query.query),
            VaultQueryKind::Read => Self::Read(query.query),
        }
    }
}

impl Session {
    /// The answers as one text, or `None` if there are none. Questions that fail or find nothing are left out, because
    /// a worker without a note is better than no worker. If the vault is disabled, all are left out.
    pub(super) async fn knowledge(&self, queries: Vec<VaultQuery>) -> Option<String> {
        if queries.is_empty() {
            return None;
        }
        let questions: Vec<Question> = queries.into_iter().map(Question::from).collect();
        let answered = self.vault(move |vault| Ok::<_, VaultError>(vault.knowledge(&questions))).await;
        match answered {
            Ok(text) => text,
            Err(error) => {
                tracing::debug!(%error, "cannot query the vault");
                None
            }
        }
    }
}
