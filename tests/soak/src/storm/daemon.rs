//! Faults of the daemon and of the connections to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use agentiso_testkit::Process;
use rustix::process::Signal;

use super::{LOOK_EVERY, Storm};
use crate::plan::{Damage, Deed, is_of_mail};
use crate::rng::pick;
use crate::site::pause;
use crate::weather::Spell;

/// The time for a client to reach the step of a fault, or the write that is to fail.
const REACHED_WITHIN: Duration = Duration::from_secs(24);

/// The number of times that the deed is requested within that time.
const ATTEMPTS: u32 = 8;

/// SIGTERM stops all VMs first.
const STOPPED_WITHIN: Duration = Duration::from_secs(120);

/// After a failed write the daemon writes again with the next change of any client.
const CAUGHT_UP_AFTER: Duration = Duration::from_secs(10);

const GONE_WITHIN: Duration = Duration::from_secs(30);

impl Storm<'_> {
    pub(super) fn kill_daemon(&self) -> bool {
        let Some(daemon) = self.site.host.daemon() else { return false };
        let _spell = self.site.weather.begin(Spell::Restart);
        {
            let _gate = self.site.gate.write().unwrap_or_else(PoisonError::into_inner);
            self.end(&daemon, Signal::KILL, GONE_WITHIN);
        }
        self.wait_for_answer();
        true
    }

    pub(super) fn stop_daemon(&self) -> bool {
        let Some(daemon) = self.site.host.daemon() else { return false };
        let _spell = self.site.weather.begin(Spell::Restart);
        {
            let _gate = self.site.gate.write().unwrap_or_else(PoisonError::into_inner);
            for (short, _) in self.vms() {
                self.site.weather.strike(&short);
            }
            self.end(&daemon, Signal::TERM, STOPPED_WITHIN);
        }
        self.wait_for_answer();
        true
    }

    fn end(&self, daemon: &Process, signal: Signal, limit: Duration) {
        daemon.signal(signal);
        if !daemon.ends_within(limit) {
            self.unexpected(&format!("the daemon did not end within {limit:?} of {signal:?}"));
            daemon.signal(Signal::KILL);
        }
    }

    pub(super) fn kill_daemon_at(&self, step: &str, deed: Deed) -> bool {
        let Some(daemon) = self.site.host.daemon() else { return false };
        let _spell = self.site.weather.begin(Spell::Restart);
        if !self.arm(&format!("die {step}")) {
            return false;
        }
        let ended = self.ask_for(deed, |limit| daemon.ends_within(limit).then_some(())).is_some();
        // The fault file decides the race: if the daemon has removed it, it carries the fault out.
        let obeys = !self.disarm();
        if obeys && !daemon.ends_within(GONE_WITHIN) {
            self.unexpected(&format!("the daemon came to {step} and did not end within {GONE_WITHIN:?}"));
        } else if !obeys && (ended || !daemon.is_alive()) {
            self.unexpected(&format!("the daemon ended by itself before it came to {step}"));
        }
        self.wait_for_answer();
        obeys
    }

    /// Requests a deed from the clients until `has_come` reports a result.
    pub(super) fn ask_for<T>(
        &self,
        deed: Deed,
        mut has_come: impl FnMut(Duration) -> Option<T>,
    ) -> Option<T> {
        // A client that lacks a prerequisite of the deed creates that first, so the deed is requested again.
        let came = (0..ATTEMPTS).find_map(|_| {
            self.site.weather.want(Some(deed));
            has_come(REACHED_WITHIN / ATTEMPTS)
        });
        self.site.weather.want(None);
        came
    }

    pub(super) fn fail_write(&self, errno: &str, place: &str) -> bool {
        // A snapshot passes all places except those of inboxes. A client without a team makes one first.
        let (spell, deed) = match is_of_mail(place) {
            true => (Spell::MailError, Deed::Team),
            false => (Spell::WriteError, Deed::SnapshotDisk),
        };
        let _spell = self.site.weather.begin(spell);
        if !self.arm(&format!("{errno} {place}")) {
            return false;
        }
        self.ask_for(deed, |limit| {
            let begun = Instant::now();
            while self.site.fault_file.exists() && begun.elapsed() < limit {
                pause(LOOK_EVERY);
            }
            (!self.site.fault_file.exists()).then_some(())
        });
        !self.disarm()
    }

    /// Writes the fault file, which tells the daemon where to fail next. The daemon removes it when it fails.
    pub(super) fn arm(&self, text: &str) -> bool {
        let file = &self.site.fault_file;
        let temporary = file.with_extension("new");
        let armed = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, file));
        if let Err(error) = &armed {
            self.unexpected(&format!("the fault could not be armed: {error}"));
        }
        armed.is_ok()
    }

    /// Removes the fault file. False if the daemon has removed it first.
    pub(crate) fn disarm(&self) -> bool {
        std::fs::remove_file(&self.site.fault_file).is_ok()
    }

    pub(super) fn pause_daemon(&self, time: Duration) -> bool {
        let Some(daemon) = self.site.host.daemon() else { return false };
        let _spell = self.site.weather.begin(Spell::Pause);
        daemon.signal(Signal::STOP);
        pause(time);
        daemon.signal(Signal::CONT);
        self.wait_for_answer();
        true
    }

    /// The next daemon runs in a time namespace whose monotonic clock is far ahead; the one after it runs without.
    pub(super) fn jump_clock(&self, secs: i64) -> bool {
        let Some(daemon) = self.site.host.daemon() else { return false };
        let _spell = self.site.weather.begin(Spell::Restart);
        let started = {
            let _gate = self.site.gate.write().unwrap_or_else(PoisonError::into_inner);
            self.end(&daemon, Signal::KILL, GONE_WITHIN);
            let plain = self.site.host.command();
            let mut command = Command::new("unshare");
            command.args(["--time", "--monotonic", &secs.to_string(), "--"]).arg(plain.get_program());
            command.args(["ps", "--json", "--config"]).arg(self.site.host.config_path());
            command.env_clear();
            command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        self.wait_for_answer();
        started
    }

    /// Damages the ledger. Its facts are also in the workspaces' directories, so nothing may be lost. After a failed
    /// write the directories may be behind the ledger, so it is not damaged until they have caught up.
    pub(super) fn damage_ledger(&self, damage: Damage, choice: u64) -> bool {
        if self.site.weather.writes_failed_since(Instant::now() - CAUGHT_UP_AFTER) {
            return false;
        }
        let Some(daemon) = self.site.host.daemon() else { return false };
        let _spell = self.site.weather.begin(Spell::Restart);
        let damaged = {
            let _gate = self.site.gate.write().unwrap_or_else(PoisonError::into_inner);
            self.end(&daemon, Signal::KILL, GONE_WITHIN);
            let file = self.site.host.state_file();
            let old = std::fs::read(&file).unwrap_or_default();
            self.site.ledger_was_lost.store(true, Ordering::Release);
            std::fs::write(&file, damaged(old, damage, choice)).is_ok()
        };
        self.wait_for_answer();
        damaged
    }

    /// Ends a client's connection: by killing its `serve`, or by closing it, possibly during a call.
    pub(super) fn end_connection(&self, choice: u64, politely: bool) -> bool {
        let all = &self.site.connections;
        let indices: Vec<usize> = (0..all.len()).collect();
        let Some(index) = pick(&indices, choice).copied() else { return false };
        let held = all[index].lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(client) = held else { return false };
        let _spell = self.site.weather.begin(Spell::Connection(index));
        if !politely {
            client.kill();
        } else if catch_unwind(AssertUnwindSafe(|| client.hang_up())).is_err() {
            self.unexpected("serve did not end after its client had hung up");
        }
        self.settle(&client);
        true
    }
}

fn damaged(mut ledger: Vec<u8>, damage: Damage, choice: u64) -> Vec<u8> {
    match damage {
        Damage::Half => ledger.truncate(ledger.len() / 2),
        Damage::Byte => {
            let length = (ledger.len() as u64).max(1);
            // The byte 1 never occurs in JSON, so this is always a change.
            if let Some(byte) = usize::try_from(choice % length).ok().and_then(|at| ledger.get_mut(at)) {
                *byte = 1;
            }
        }
    }
    ledger
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_changes_the_ledger() {
        let ledger = b"{\"schema_version\": 1}".to_vec();
        assert_eq!(damaged(ledger.clone(), Damage::Half, 3).len(), ledger.len() / 2);
        let other = damaged(ledger.clone(), Damage::Byte, 3);
        assert_eq!(other.iter().zip(&ledger).filter(|(a, b)| a != b).count(), 1);
        assert!(damaged(Vec::new(), Damage::Byte, 3).is_empty());
    }
}
