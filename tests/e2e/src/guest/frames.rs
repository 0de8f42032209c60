//! Forged Ethernet frames: one guest sends frames that no network stack would make, other guests capture what arrives.

use agentiso_testkit::TestWorkspace;
use serde_json::{Value, json};

use super::{Background, address};

/// The workspaces of an attack: the sender, the target, and the one whose addresses the sender pretends to have.
#[derive(Clone, Copy, Debug)]
pub struct AttackSetup<'a> {
    pub attacker: &'a TestWorkspace<'a>,
    pub victim: &'a TestWorkspace<'a>,
    pub somebody: &'a TestWorkspace<'a>,
}

impl AttackSetup<'_> {
    /// Sends every frame that `attack.py` can make and returns their number.
    pub fn attack(&self, server: &str) -> u64 {
        let on_wire = |ws: &TestWorkspace<'_>| json!({"mac": mac(ws), "address": address(ws)});
        let about = json!({
            "victim": on_wire(self.victim), "somebody": on_wire(self.somebody), "server": server,
            "own": on_wire(self.attacker),
        });
        self.attacker.write("/root/attack.py", include_str!("attack.py"));
        self.attacker.write("/root/attack.json", &about.to_string());
        let sent = self.attacker.sh("python3 /root/attack.py < /root/attack.json");
        sent.parse().unwrap_or_else(|_| panic!("not a number of frames: {sent}"))
    }
}

pub(super) fn mac(ws: &TestWorkspace<'_>) -> String {
    ws.sh("cat /sys/class/net/eth0/address")
}

/// Captures frames in a guest that come from an attacker.
#[derive(Debug)]
pub struct Capture<'a>(Background<'a>);

impl<'a> Capture<'a> {
    pub fn start(on: &'a TestWorkspace<'a>, attacker: &TestWorkspace<'_>) -> Self {
        Self(Background::start(on, "capture", include_str!("capture.py"), &[&mac(attacker)]))
    }

    /// Ends the capture and returns the captured frames in hexadecimal.
    pub fn end(self) -> Vec<Value> {
        let said = self.0.end();
        said["captured"].as_array().cloned().unwrap_or_else(|| panic!("no capture: {said}"))
    }
}
