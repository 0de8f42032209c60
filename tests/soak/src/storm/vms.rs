//! Faults of single VMs from outside: kill and pause.

use std::time::Duration;

use agentiso_testkit::Process;
use rustix::process::Signal;

use super::Storm;
use crate::rng::pick;
use crate::site::pause;
use crate::weather::Spell;

impl Storm<'_> {
    /// Every running VM: the first digits of its id, and its process.
    pub(super) fn vms(&self) -> Vec<(String, Process)> {
        let output = self.site.host.cli(&["ps", "--json"]);
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        self.site.journal.saw_workspaces(list.as_array().map_or(0, Vec::len));
        let vm = |one: &serde_json::Value| {
            let short = one["workspace_id"].as_str()?.get(..8)?.to_owned();
            let pid = i32::try_from(one["pid"].as_i64()?).ok()?;
            Some((short, Process::open(pid)?))
        };
        list.as_array().into_iter().flatten().filter_map(vm).collect()
    }

    fn spell_of(&self, short: &str) -> Spell {
        Spell::Vm { short: short.to_owned(), is_known: self.site.is_known(short) }
    }

    pub(super) fn kill_vm(&self, choice: u64) -> bool {
        let vms = self.vms();
        let Some((short, process)) = pick(&vms, choice) else { return false };
        self.note(&format!("kills {short}, process {}", process.pid));
        let _spell = self.site.weather.begin(self.spell_of(short));
        process.kill();
        true
    }

    pub(super) fn pause_vm(&self, choice: u64, time: Duration) -> bool {
        let vms = self.vms();
        let Some((short, process)) = pick(&vms, choice) else { return false };
        self.note(&format!("pauses {short}, process {}", process.pid));
        // A pause does not explain a VM that is found stopped.
        let _spell = self.site.weather.begin_passing(self.spell_of(short));
        process.signal(Signal::STOP);
        pause(time);
        process.signal(Signal::CONT);
        true
    }
}
