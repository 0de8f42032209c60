//! The connection to the daemon: it is made again whenever it ends, and the new session adopts the client's workspaces.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use agentiso_testkit::{Client, RpcReply};
use serde_json::json;

use super::Player;
use super::call::CANCELLED;
use crate::panics::panics_told;
use crate::site::pause;

/// Time for a daemon to start on a busy host, possibly with another fault in between.
const CONNECT_DEADLINE: Duration = Duration::from_secs(120);

const HELLO_DEADLINE: Duration = Duration::from_secs(40);

/// Time for the daemon to notice that the client's old session is gone.
const ADOPT_DEADLINE: Duration = Duration::from_secs(45);

const AGAIN: Duration = Duration::from_millis(300);

impl Player<'_> {
    /// The existing connection, or a new one whose session owns this client's workspaces. `None` if that fails, which
    /// is recorded.
    pub(super) fn connection(&mut self) -> Option<Arc<Client>> {
        if let Some(client) = self.client.as_ref().filter(|client| !client.is_closed()) {
            return Some(Arc::clone(client));
        }
        let begun = Instant::now();
        while begun.elapsed() < CONNECT_DEADLINE {
            self.drop_connection();
            let Some(client) = self.say_hello() else {
                pause(AGAIN);
                continue;
            };
            let client = Arc::new(client);
            self.client = Some(Arc::clone(&client));
            *self.site.connections[self.index].lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Arc::clone(&client));
            if self.adopt_all(&client) {
                self.site.has_adopted[self.index].store(true, Ordering::Release);
                return Some(client);
            }
        }
        self.unexpected("no connection to the server could be made", begun);
        self.site.end();
        None
    }

    pub(super) fn drop_connection(&mut self) {
        self.site.has_adopted[self.index].store(false, Ordering::Release);
        self.site.connections[self.index].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(client) = self.client.take() {
            client.kill();
            for panic in panics_told(&client.stderr()) {
                self.unexpected(&format!("serve said: {panic}"), Instant::now());
            }
        }
    }

    fn say_hello(&self) -> Option<Client> {
        let _gate = self.site.gate.read().unwrap_or_else(PoisonError::into_inner);
        let client = self.site.host.raw_client(&[]);
        let params = json!({
            "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"},
        });
        match client.request("initialize", params).wait_for(HELLO_DEADLINE) {
            Some(RpcReply::Result(_)) => {
                client.notify("notifications/initialized", json!({}));
                Some(client)
            }
            Some(RpcReply::Error { .. }) | None => {
                client.kill();
                self.note(&format!("no greeting: {}", client.stderr().trim()));
                None
            }
        }
    }

    /// Adopts everything that this client's earlier sessions owned. False if the connection ended again.
    fn adopt_all(&self, client: &Client) -> bool {
        let members = self.team.iter().flat_map(|team| team.members());
        let names: Vec<String> = self.workspaces.keys().cloned().chain(members).collect();
        names.iter().all(|name| self.adopt(client, name))
    }

    fn adopt(&self, client: &Client, name: &str) -> bool {
        let begun = Instant::now();
        loop {
            let adopted = client.start_tool("workspace_adopt", json!({"workspace_id": name}));
            match adopted.wait_for(HELLO_DEADLINE) {
                None => return false,
                Some(RpcReply::Result(value)) if !value["isError"].as_bool().unwrap_or(false) => return true,
                Some(RpcReply::Result(value)) => {
                    let code = value["structuredContent"]["code"].as_str().unwrap_or("no_code");
                    // The next use of the workspace finds that it is gone, and judges it.
                    if code == "workspace_not_found" {
                        return true;
                    }
                    let text = value["content"][0]["text"].as_str().unwrap_or_default();
                    if begun.elapsed() > ADOPT_DEADLINE {
                        self.unexpected(&format!("{name} cannot be taken over: {code}: {text}"), begun);
                        return true;
                    }
                }
                // The daemon or the connection ends.
                Some(RpcReply::Error { message, .. }) if message == CANCELLED => return false,
                Some(RpcReply::Error { code, message }) => {
                    self.unexpected(&format!("adopt {name}: rpc {code}: {message}"), begun);
                    return true;
                }
            }
            pause(AGAIN);
        }
    }
}
