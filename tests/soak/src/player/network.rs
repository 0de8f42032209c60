//! Operations on policies and forwards, and attempts on other clients' workspaces.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Player;
use super::call::{About, Answer};
use crate::model::{Forward, Policy};
use crate::rng::pick;

const FIRST_PORT: u16 = 7000;
const PORTS: u64 = 3;

/// Other clients' workspaces are only tried if no session was hit for this long: right after a fault they may have no
/// owner, and then any client may adopt them.
const CALM: Duration = Duration::from_secs(5);

impl Player<'_> {
    pub(super) fn policy(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let port = u16::try_from(choice / 5 % 1000).unwrap_or(0) + 1;
        let allowed_ports = if choice.is_multiple_of(3) { Vec::new() } else { vec![port, port + 1] };
        let policy = Policy { allow_internet: choice.is_multiple_of(2), allowed_ports };
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        let short = workspace.short().to_owned();
        let about = About { vm: Some(&short), ..About::default() };
        let arguments = json!({
            "workspace_id": name, "allow_internet": policy.allow_internet, "allowed_ports": policy.allowed_ports,
        });
        let answer = self.call("network_policy", &arguments, &about);
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        match answer {
            Answer::Done(_) => workspace.policies = vec![policy],
            Answer::Refused { .. } | Answer::Cut => workspace.policies.push(policy),
        }
    }

    pub(super) fn forward(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let guest_port = FIRST_PORT + u16::try_from(choice / 5 % PORTS).unwrap_or(0);
        if self.workspaces[&name].forwards.get(&guest_port).is_some_and(|forward| forward.is_sure) {
            self.unforward(&name, guest_port);
        } else {
            self.add_forward(&name, guest_port);
        }
    }

    fn add_forward(&mut self, name: &str, guest_port: u16) {
        let short = self.workspaces[name].short().to_owned();
        let about = About { vm: Some(&short), ..About::default() };
        let arguments = json!({"workspace_id": name, "action": "add", "guest_port": guest_port});
        let answer = self.call("port_forward", &arguments, &about).done();
        let host_port =
            answer.and_then(|result| u16::try_from(result.structured["host_port"].as_u64()?).ok());
        if let Some(workspace) = self.workspaces.get_mut(name) {
            workspace.forwards.insert(guest_port, Forward { host_port, is_sure: host_port.is_some() });
        }
        if let Some(port) = host_port {
            self.must_be_open(name, port);
        }
    }

    /// Checks that every certain forward is open, also after a restart of the daemon.
    pub(super) fn check_forwards(&self, name: &str) {
        let Some(workspace) = self.workspaces.get(name) else { return };
        for forward in workspace.forwards.values().filter(|forward| forward.is_sure) {
            if let Some(port) = forward.host_port {
                self.must_be_open(name, port);
            }
        }
    }

    /// The daemon listens, whether or not a program in the guest does.
    fn must_be_open(&self, name: &str, port: u16) {
        let since = Instant::now();
        if let Err(error) = TcpStream::connect(("127.0.0.1", port))
            && !self.site.weather.daemon_was_hit_since(since)
        {
            self.unexpected(&format!("port {port}, forwarded to {name}, is closed: {error}"), since);
        }
    }

    fn unforward(&mut self, name: &str, guest_port: u16) {
        let short = self.workspaces[name].short().to_owned();
        let about = About { vm: Some(&short), ..About::default() };
        let arguments = json!({"workspace_id": name, "action": "remove", "guest_port": guest_port});
        let is_done = self.call("port_forward", &arguments, &about).is_done();
        let Some(workspace) = self.workspaces.get_mut(name) else { return };
        if is_done {
            workspace.forwards.remove(&guest_port);
        } else if let Some(forward) = workspace.forwards.get_mut(&guest_port) {
            forward.is_sure = false;
        }
    }

    /// Another client's workspace must refuse this client.
    pub(super) fn trespass(&mut self, choice: u64) {
        if self.site.weather.owners_were_hit_since(Instant::now() - CALM) {
            return;
        }
        let others: Vec<(usize, String)> = (0..self.site.owned.len())
            .filter(|client| *client != self.index && self.site.holds_its_own(*client))
            .flat_map(|client| {
                let owned = self.site.owned[client].lock();
                let names = owned.map(|owned| owned.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
                names.into_iter().map(move |name| (client, name))
            })
            .collect();
        let Some((owner, name)) = pick(&others, choice) else { return };
        let since = Instant::now();
        let fine = ["not_owned", "owner_active", "workspace_not_found"];
        let about = About { fine: &fine, ..About::default() };
        let answer = self.call("exec", &json!({"workspace_id": name, "command": "true"}), &about);
        if answer.is_done() {
            if !self.site.weather.owners_were_hit_since(since) && self.site.holds_its_own(*owner) {
                self.unexpected(&format!("{name} of another client let this one in"), since);
            }
            // This session may own the workspace. Ending the session lets its owner adopt it again.
            self.drop_connection();
        }
    }
}
