//! Problems of a workspace's network, for the client that uses the workspace.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkTrouble {
    /// The reason why it has no network at all.
    #[serde(rename = "seat", default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<String>,
    /// The reasons why forwards do not listen, by the port of the guest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forwards: BTreeMap<u16, String>,
}

impl NetworkTrouble {
    /// A sentence for each problem.
    pub fn sentences(&self) -> Vec<String> {
        let attachment = self.attachment.iter().map(|why| format!("the workspace has no network: {why}"));
        let forwards = self.forwards.iter().map(|(port, why)| format!("port {port} is not forwarded: {why}"));
        attachment.chain(forwards).collect()
    }
}
