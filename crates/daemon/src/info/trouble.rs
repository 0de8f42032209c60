//! What of a workspace's network is not there although it should be, for whoever uses the workspace.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkTrouble {
    /// Why it has no network at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<String>,
    /// Why forwards do not listen, by the port of the guest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forwards: BTreeMap<u16, String>,
}

impl NetworkTrouble {
    /// A sentence for each.
    pub fn sentences(&self) -> Vec<String> {
        let seat = self.seat.iter().map(|why| format!("the workspace has no network: {why}"));
        let forwards = self.forwards.iter().map(|(port, why)| format!("port {port} is not forwarded: {why}"));
        seat.chain(forwards).collect()
    }
}
