//! Faults between two steps: a VM, or a client's `serve`, is killed while the daemon pauses at a named step.
//!
//! The fault file names a socket together with the step. The daemon connects, and continues when the connection ends:
//! after the kill, and also if the storm itself ends. A paused daemon cannot answer, so the workspaces at the step are
//! found through the calls of the clients, the ledger and the list of processes.

use std::collections::BTreeMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

use agentiso_testkit::{Process, processes_mentioning};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Storm;
use crate::plan::{Deed, tools_at};
use crate::rng::pick;
use crate::site::Call;
use crate::weather::Spell;

/// The time between the daemon's removal of the fault file and its connection.
const COMES_WITHIN: Duration = Duration::from_secs(30);

impl Storm<'_> {
    /// Kills every QEMU of the workspaces that may be at the step.
    pub(super) fn kill_vm_at(&self, step: &str, deed: Deed) -> bool {
        let killed = self.at_step(step, deed, || {
            let under_way = self.under_way(step);
            let mut victims = vms(self);
            victims.retain(|(short, _)| under_way.contains_key(short));
            let spells: Vec<_> = under_way
                .into_iter()
                .filter(|(short, _)| victims.iter().any(|(victim, _)| victim == short))
                .map(|(short, is_known)| self.site.weather.begin(Spell::Vm { short, is_known }))
                .collect();
            for (short, process) in &victims {
                self.note(&format!("kills {short}, process {}, at {step}", process.pid));
                process.kill();
            }
            (!victims.is_empty()).then_some((spells, victims))
        });
        let Some((_spells, victims)) = killed else { return false };
        self.wait_for_answer();
        for (short, process) in self.vms() {
            let was_hit = victims.iter().any(|(victim, _)| *victim == short);
            if was_hit && victims.iter().all(|(_, old)| old.pid != process.pid) {
                // The deed itself has started another VM, so this kill does not explain a later stop.
                self.site.weather.forget_strike(&short);
            }
        }
        true
    }

    /// Kills the `serve` of a client whose call may be at the step.
    pub(super) fn kill_serve_at(&self, step: &str, deed: Deed, choice: u64) -> bool {
        let killed = self.at_step(step, deed, || {
            let (index, call) = pick(&self.calls_at(step), choice)?.clone();
            let held = self.site.connections[index].lock().unwrap_or_else(PoisonError::into_inner).clone();
            let client = held?;
            self.note(&format!("kills the serve of c{index} during {} at {step}", call.tool));
            let spell = self.site.weather.begin(Spell::Connection(index));
            client.kill();
            Some((spell, client))
        });
        let Some((_spell, client)) = killed else { return false };
        self.settle(&client);
        self.wait_for_answer();
        true
    }

    /// Pauses the daemon at a step of a deed while `act` runs. `None` if no client reached the step, or `act` found
    /// nothing.
    fn at_step<T>(&self, step: &str, deed: Deed, act: impl FnOnce() -> Option<T>) -> Option<T> {
        let daemon = self.site.host.daemon()?;
        let holder = match Holder::open(self.site.host.dir().join("held")) {
            Ok(holder) => holder,
            Err(error) => {
                self.unexpected(&format!("nobody could listen for a daemon that stands still: {error}"));
                return None;
            }
        };
        if !self.arm(&format!("hold {step} {}", holder.path.display())) {
            return None;
        }
        let held = self.ask_for(deed, |limit| holder.comes_within(limit));
        // The fault file decides the race: if the daemon has removed it, it will pause.
        if held.is_none() && self.disarm() {
            return None;
        }
        let done = match held.or_else(|| holder.comes_within(COMES_WITHIN)) {
            Some(_until_it_is_done) => act(),
            None => {
                self.unexpected(&format!("the daemon came to {step} and did not say so"));
                None
            }
        };
        if !daemon.is_alive() {
            self.unexpected(&format!("the daemon ended while it stood still at {step}"));
        }
        done
    }

    /// The calls that may have brought the daemon to the step, with the index of their client.
    fn calls_at(&self, step: &str) -> Vec<(usize, Call)> {
        let all = self.site.calls.iter().enumerate();
        all.filter_map(|(index, call)| {
            Some((index, call.lock().unwrap_or_else(PoisonError::into_inner).clone()?))
        })
        .filter(|(_, call)| tools_at(step).contains(&call.tool.as_str()))
        .collect()
    }

    /// The workspaces that those calls use or make, by the first digits of their ids, and whether a client knows them.
    fn under_way(&self, step: &str) -> BTreeMap<String, bool> {
        let calls = self.calls_at(step);
        let mut all = BTreeMap::new();
        if calls.iter().any(|(_, call)| call.makes_vms) {
            let text = std::fs::read(self.site.host.state_file()).unwrap_or_default();
            let state: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            for (id, entry) in state["workspaces"].as_object().into_iter().flatten() {
                if let Some(short) = id.get(..8).filter(|_| entry["phase"] == "creating") {
                    all.insert(short.to_owned(), false);
                }
            }
        }
        all.extend(calls.into_iter().filter_map(|(_, call)| Some((call.vm?, true))));
        all
    }
}

/// Every QEMU process of a workspace, from the list of processes.
fn vms(storm: &Storm<'_>) -> Vec<(String, Process)> {
    let found = processes_mentioning(storm.site.host.dir()).into_iter().filter_map(Process::open);
    found
        .filter_map(|process| {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).ok()?;
            Some((workspace_of(&String::from_utf8_lossy(&line))?.to_owned(), process))
        })
        .collect()
}

/// The first digits of the id of the workspace to which a QEMU with this command line belongs. A QEMU that converts a
/// memory snapshot has its own id, and a file of the workspace. A QEMU that makes a template belongs to none.
fn workspace_of(command_line: &str) -> Option<&str> {
    let mark = if command_line.contains("/run/t-") { "/workspaces/" } else { "\0-name\0agentiso-" };
    command_line.split_once(mark)?.1.get(..8)
}

/// The socket to which a daemon connects when it has reached its step.
#[derive(Debug)]
struct Holder {
    listener: UnixListener,
    path: PathBuf,
}

impl Holder {
    fn open(path: PathBuf) -> std::io::Result<Self> {
        Ok(Self { listener: UnixListener::bind(&path)?, path })
    }

    /// The connection of the daemon, which pauses until this is dropped.
    fn comes_within(&self, limit: Duration) -> Option<UnixStream> {
        let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let has_come = poll(&mut fds, Some(&timeout)).is_ok_and(|count| count == 1);
        has_come.then(|| self.listener.accept().ok()).flatten().map(|(stream, _)| stream)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_are_distinguished_from_template_makers() {
        let id = "ddc165dc-d276-44c7-b568-864a12332235";
        let vm = format!("/usr/bin/qemu\0-name\0agentiso-{id}\0-pidfile\0/a/data/run/ddc165dc/qemu.pid");
        assert_eq!(workspace_of(&vm), Some("ddc165dc"));
        let of_template = "qemu\0-name\0agentiso-a5705c24-1f17\0-pidfile\0/a/data/run/t-a5705c24/qemu.pid";
        assert_eq!(workspace_of(of_template), None);
        let converter = format!("{of_template}\0mem-path\0/a/data/workspaces/{id}/.memory-1/ram");
        assert_eq!(workspace_of(&converter), Some("ddc165dc"));
        assert_eq!(workspace_of("agentiso\0daemon\0--config\0/a/config.toml"), None);
    }

    #[test]
    fn storm_waits_for_a_step_with_a_deadline() {
        let path = std::env::temp_dir().join(format!("agentiso-soak-held-{}", std::process::id()));
        let holder = Holder::open(path.clone()).unwrap();
        assert!(holder.comes_within(Duration::ZERO).is_none());
        let _daemon = UnixStream::connect(&path).unwrap();
        assert!(holder.comes_within(COMES_WITHIN).is_some());
        drop(holder);
        assert!(!path.exists());
    }
}
