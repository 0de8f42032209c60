//! A guest that puts frames on its wire that no stack would make, and guests that see what comes of it.

use agentiso_testkit::TestWorkspace;
use serde_json::{Value, json};

use super::{Background, address};

/// The wires that an attack is about: whose it comes from, whom it is meant for, and whom it pretends to be.
#[derive(Clone, Copy, Debug)]
pub struct Wires<'a> {
    pub attacker: &'a TestWorkspace<'a>,
    pub victim: &'a TestWorkspace<'a>,
    pub somebody: &'a TestWorkspace<'a>,
}

impl Wires<'_> {
    /// Sends everything that `attack.py` knows, and says how many frames that were.
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

/// Watches a guest's wire for anything that comes from an attacker.
#[derive(Debug)]
pub struct Capture<'a>(Background<'a>);

impl<'a> Capture<'a> {
    pub fn start(on: &'a TestWorkspace<'a>, attacker: &TestWorkspace<'_>) -> Self {
        Self(Background::start(on, "capture", include_str!("capture.py"), &[&mac(attacker)]))
    }

    /// The frames that came, in hexadecimal.
    pub fn end(self) -> Vec<Value> {
        let said = self.0.end();
        said["captured"].as_array().cloned().unwrap_or_else(|| panic!("no capture: {said}"))
    }
}
