//! The storm: it carries out one fault at a time while the clients continue.

mod daemon;
mod disk;
mod held;
mod vms;

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use agentiso_testkit::Client;
use serde_json::json;

use crate::growth::Growth;
use crate::journal::Kind;
use crate::panics::Panics;
use crate::plan::{Fault, Strike, Strikes, spares_daemon};
use crate::site::{Site, pause};

/// The longest wait for the clients' operations before the next fault.
const LONGEST_CALM: Duration = Duration::from_secs(25);

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The time from a fault to a daemon that answers.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Storm<'a> {
    site: &'a Site,
    strikes: Strikes,
    pub(crate) growth: Growth,
    panics: Panics,
    begun: Instant,
}

impl<'a> Storm<'a> {
    pub(crate) fn new(site: &'a Site, strikes: Strikes) -> Self {
        Self { site, strikes, growth: Growth::default(), panics: Panics::default(), begun: Instant::now() }
    }

    pub(crate) fn rage(&mut self) {
        while !self.site.is_over() {
            let strike = self.strikes.next();
            if strike.fault.ends_daemon() && spares_daemon(self.begun.elapsed()) {
                self.note(&format!("{:?} is left out", strike.fault));
                continue;
            }
            self.wait(strike.after);
            if self.site.is_over() {
                break;
            }
            self.note(&format!("{:?}", strike.fault));
            if self.strike(&strike) {
                self.site.journal.count_fault(strike.fault.kind());
            } else {
                self.note("it did not come to it");
            }
            self.look_for_panics();
        }
        self.disarm();
    }

    /// Reports every new panic in the daemon's log.
    pub(crate) fn look_for_panics(&mut self) {
        for panic in self.panics.look(&self.site.host.data()) {
            self.unexpected(&format!("the daemon's log says: {panic}"));
        }
    }

    /// Waits for this many operations of the clients.
    fn wait(&mut self, operations: u64) {
        let until = self.site.journal.operations() + operations;
        let begun = Instant::now();
        // The fault before this is over and the daemon has answered, so this daemon must not end during the wait.
        let daemon = self.site.host.daemon();
        while self.site.journal.operations() < until && begun.elapsed() < LONGEST_CALM && !self.site.is_over()
        {
            self.growth.sample(daemon.as_ref().map(|daemon| daemon.pid));
            if daemon.as_ref().is_some_and(|daemon| !daemon.is_alive()) {
                self.unexpected("the daemon ended although nothing was done to it");
                self.wait_for_answer();
                return;
            }
            pause(LOOK_EVERY);
        }
    }

    /// Carries out a fault and waits until the daemon answers again. False if the fault had no target.
    fn strike(&self, strike: &Strike) -> bool {
        match strike.fault {
            Fault::KillDaemon => self.kill_daemon(),
            Fault::StopDaemon => self.stop_daemon(),
            Fault::DaemonAtStep(step, deed) => self.kill_daemon_at(step, deed),
            Fault::VmAtStep(step, deed) => self.kill_vm_at(step, deed),
            Fault::ServeAtStep(step, deed) => self.kill_serve_at(step, deed, strike.choice),
            Fault::KillVm => self.kill_vm(strike.choice),
            Fault::PauseVm { secs } => self.pause_vm(strike.choice, Duration::from_secs(secs)),
            Fault::PauseDaemon { secs } => self.pause_daemon(Duration::from_secs(secs)),
            Fault::KillServe => self.end_connection(strike.choice, false),
            Fault::CutConnection => self.end_connection(strike.choice, true),
            Fault::FillDisk { secs } => self.fill_disk(Duration::from_secs(secs)),
            Fault::WriteError { errno, place } => self.fail_write(errno, place),
            Fault::JumpClock { secs } => self.jump_clock(secs),
            Fault::DamageLedger(damage) => self.damage_ledger(damage, strike.choice),
        }
    }

    fn note(&self, text: &str) {
        self.site.journal.note("storm", text);
    }

    fn unexpected(&self, text: &str) {
        self.site.journal.find(Kind::Unexpected, "storm", text);
    }

    /// Returns once the daemon answers on every connection that did not end. Starts a daemon if none runs.
    fn wait_for_answer(&self) {
        let begun = Instant::now();
        loop {
            let output = self.site.host.cli(&["ps", "--json"]);
            if output.status.success() {
                let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
                self.site.journal.saw_workspaces(list.as_array().map_or(0, Vec::len));
                for held in &self.site.connections {
                    let held = held.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    held.iter().for_each(|client| self.settle(client));
                }
                return;
            }
            if begun.elapsed() > ANSWERS_WITHIN {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                self.unexpected(&format!("the server does not answer: {said}"));
                self.site.end();
                return;
            }
            pause(LOOK_EVERY);
        }
    }

    /// Waits until a connection answers or is closed for its client too. If a client noticed the end only after the
    /// fault was over, no fault would explain it.
    fn settle(&self, client: &Client) {
        if client.request("ping", json!({})).wait_for(ANSWERS_WITHIN).is_none() && !client.is_closed() {
            self.unexpected(&format!("a connection neither answered nor ended within {ANSWERS_WITHIN:?}"));
        }
    }
}
