//! The record of active and past faults, and the decision which errors they explain.
//!
//! A fault is a *spell*: it begins, and ends when the storm has seen that the daemon answers again. A failed call is
//! explained only by a spell that overlaps it in time and can have this effect on the call's workspace. A VM that was
//! hit stays marked until its owner has found it stopped.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::plan::Deed;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spell {
    /// The daemon ends, and another one starts.
    Restart,
    /// The daemon is paused.
    Pause,
    /// The connection of this client ends.
    Connection(usize),
    /// This VM ends or is paused.
    Vm {
        /// The first digits of its id.
        short: String,
        /// Whether a client owned it when it was hit. A VM that is still being made is in no client's model.
        is_known: bool,
    },
    /// The host's disk is full.
    FullDisk,
    /// A write of the daemon to the ledger or to a file about a disk fails.
    WriteError,
    /// A write of the daemon to an inbox fails.
    MailError,
}

/// The context of a failed call.
#[derive(Clone, Debug)]
pub(crate) struct Trouble<'a> {
    /// The error's code; `None` if no answer came.
    pub(crate) code: Option<&'a str>,
    pub(crate) client: usize,
    pub(crate) vm: Option<&'a str>,
    /// Whether the call makes VMs whose ids are not known yet.
    pub(crate) makes_vms: bool,
    /// Whether the call starts a known VM.
    pub(crate) starts_vm: bool,
}

/// Error codes for a VM that ended or is paused.
const OF_VMS: [&str; 9] = [
    "machine_died",
    "wrong_state",
    "guest_silent",
    "guest_unreachable",
    "boot_failed",
    "snapshot_failed",
    "setup_failed",
    "fork_failed",
    "timed_out",
];

/// Error codes while the host's disk is full. QEMU cannot write either, so VMs are suspended.
const OF_FULL_DISKS: [&str; 9] = [
    "no_space",
    "state_not_saved",
    "snapshot_failed",
    "boot_failed",
    "destroy_failed",
    "fork_failed",
    "wrong_state",
    "guest_silent",
    "machine_died",
];

/// Error codes after a failed write of the daemon to the ledger or to a file about a disk. VMs are not affected.
const OF_WRITES: [&str; 5] =
    ["no_space", "state_not_saved", "snapshot_failed", "destroy_failed", "fork_failed"];

/// Error codes after a failed write to an inbox. VMs are not affected.
const OF_MAIL: [&str; 2] = ["no_space", "mail_not_stored"];

/// The additional error code of a call that starts a VM: the failed write was to a file that a start writes.
const OF_WRITES_AT_START: &str = "boot_failed";

/// Error codes while a daemon ends or has just started.
const OF_RESTARTS: [&str; 5] =
    ["shutting_down", "cancelled", "still_attaching", "machine_died", "guest_unreachable"];

impl Spell {
    fn explains(&self, trouble: &Trouble<'_>) -> bool {
        match (self, trouble.code) {
            (Self::Restart, None) => true,
            (Self::Restart, Some(code)) => OF_RESTARTS.contains(&code),
            (Self::Connection(client), None | Some("cancelled")) => *client == trouble.client,
            (Self::Vm { .. }, Some(code)) => {
                OF_VMS.contains(&code) && self.is_about(trouble.vm, trouble.makes_vms)
            }
            (Self::FullDisk, Some(code)) => OF_FULL_DISKS.contains(&code),
            (Self::WriteError, Some(code)) => {
                let starts = trouble.makes_vms || trouble.starts_vm;
                OF_WRITES.contains(&code) || starts && code == OF_WRITES_AT_START
            }
            (Self::MailError, Some(code)) => {
                OF_MAIL.contains(&code) && trouble.vm.is_none() && !trouble.makes_vms
            }
            (Self::Pause | Self::Vm { .. } | Self::FullDisk | Self::WriteError | Self::MailError, None)
            | (Self::Connection(_) | Self::Pause, Some(_)) => false,
        }
    }

    /// Whether the spell affects this VM, or one that a call was making at the time.
    fn is_about(&self, vm: Option<&str>, makes_vms: bool) -> bool {
        match self {
            Self::Vm { short, is_known } => vm == Some(short.as_str()) || makes_vms && !is_known,
            Self::Restart
            | Self::Pause
            | Self::Connection(_)
            | Self::FullDisk
            | Self::WriteError
            | Self::MailError => false,
        }
    }
}

#[derive(Debug)]
struct Logged {
    spell: Spell,
    began: Instant,
    ended: Option<Instant>,
}

#[derive(Debug, Default)]
struct Inner {
    spells: Vec<Logged>,
    /// The number of times that each VM was hit since it was last found stopped.
    struck: BTreeMap<String, usize>,
    wanted: Option<Deed>,
}

#[derive(Debug, Default)]
pub(crate) struct Weather(Mutex<Inner>);

/// An active spell; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    weather: &'a Weather,
    at: usize,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.weather.inner().spells[self.at].ended = Some(Instant::now());
    }
}

impl Weather {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, spell: Spell) -> UnderWay<'_> {
        if let Spell::Vm { short, .. } = &spell {
            self.strike(short);
        }
        self.begin_passing(spell)
    }

    /// Begins a spell after which its VM runs as before: it marks none that may be found stopped.
    pub(crate) fn begin_passing(&self, spell: Spell) -> UnderWay<'_> {
        let mut inner = self.inner();
        inner.spells.push(Logged { spell, began: Instant::now(), ended: None });
        UnderWay { weather: self, at: inner.spells.len() - 1 }
    }

    /// Marks a VM that may be found stopped.
    pub(crate) fn strike(&self, short: &str) {
        *self.inner().struck.entry(short.to_owned()).or_default() += 1;
    }

    /// Whether the VM was hit since it was last found stopped. Clears the mark.
    pub(crate) fn take_strike(&self, short: &str) -> bool {
        self.inner().struck.remove(short).is_some()
    }

    /// Takes one mark back, because the VM that was hit has been replaced. Marks of other faults stay.
    pub(crate) fn forget_strike(&self, short: &str) {
        let mut inner = self.inner();
        if let Some(count) = inner.struck.get_mut(short) {
            *count -= 1;
            if *count == 0 {
                inner.struck.remove(short);
            }
        }
    }

    pub(crate) fn is_struck(&self, short: &str) -> bool {
        self.inner().struck.contains_key(short)
    }

    /// Whether a fault explains the failure of a call that began at `since`.
    pub(crate) fn explains(&self, trouble: &Trouble<'_>, since: Instant) -> bool {
        let was_struck = trouble.vm.is_some_and(|short| {
            let strike = Spell::Vm { short: short.to_owned(), is_known: true };
            self.is_struck(short) && strike.explains(trouble)
        });
        was_struck || self.any_since(since, |spell| spell.explains(trouble))
    }

    fn any_since(&self, since: Instant, is_meant: impl Fn(&Spell) -> bool) -> bool {
        let inner = self.inner();
        let mut overlapping =
            inner.spells.iter().filter(|logged| logged.ended.is_none_or(|end| end >= since));
        overlapping.any(|logged| is_meant(&logged.spell))
    }

    /// Whether no fault was active since then.
    pub(crate) fn was_calm_since(&self, since: Instant) -> bool {
        !self.any_since(since, |_| true)
    }

    /// Whether a fault since then can have affected the start of a VM: this one, or one that was being made. A paused
    /// daemon misses its deadlines, and one that could not write starts a VM in another way.
    pub(crate) fn could_affect(&self, vm: &str, makes_vms: bool, since: Instant) -> bool {
        self.is_struck(vm)
            || self.any_since(since, |spell| match spell {
                Spell::Restart | Spell::Pause | Spell::FullDisk | Spell::WriteError => true,
                Spell::Vm { .. } => spell.is_about(Some(vm), makes_vms),
                Spell::Connection(_) | Spell::MailError => false,
            })
    }

    /// Whether a daemon ended or was paused since then.
    pub(crate) fn daemon_was_hit_since(&self, since: Instant) -> bool {
        self.any_since(since, |spell| matches!(spell, Spell::Restart | Spell::Pause))
    }

    /// Whether a fault since then can have left workspaces without a connected owner.
    pub(crate) fn owners_were_hit_since(&self, since: Instant) -> bool {
        self.any_since(since, |spell| matches!(spell, Spell::Restart | Spell::Pause | Spell::Connection(_)))
    }

    /// Whether a write of the daemon may have failed since then.
    pub(crate) fn writes_failed_since(&self, since: Instant) -> bool {
        self.any_since(since, |spell| matches!(spell, Spell::FullDisk | Spell::WriteError))
    }

    /// Makes a client carry out this deed next, regardless of its plan.
    pub(crate) fn want(&self, deed: Option<Deed>) {
        self.inner().wanted = deed;
    }

    pub(crate) fn take_wanted(&self) -> Option<Deed> {
        self.inner().wanted.take()
    }

    /// The faults that were active since then, for the evidence of a finding.
    pub(crate) fn told_since(&self, since: Instant) -> String {
        let inner = self.inner();
        let recent = inner.spells.iter().filter(|logged| logged.ended.is_none_or(|end| end >= since));
        let words = recent
            .map(|logged| format!("{:?} {:.1} s ago", logged.spell, logged.began.elapsed().as_secs_f64()));
        let words: Vec<_> = words.collect();
        if words.is_empty() { "no fault".to_owned() } else { words.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble<'a>(code: Option<&'a str>, vm: Option<&'a str>) -> Trouble<'a> {
        Trouble { code, client: 0, vm, makes_vms: false, starts_vm: false }
    }

    fn vm(short: &str, is_known: bool) -> Spell {
        Spell::Vm { short: short.to_owned(), is_known }
    }

    #[test]
    fn error_without_a_fault_is_not_explained() {
        let weather = Weather::default();
        assert!(!weather.explains(&trouble(Some("no_space"), None), Instant::now()));
        assert!(!weather.explains(&trouble(None, None), Instant::now()));
    }

    #[test]
    fn fault_explains_only_its_own_effects() {
        let weather = Weather::default();
        let since = Instant::now();
        let _disk = weather.begin(Spell::FullDisk);
        let _serve = weather.begin(Spell::Connection(1));
        let _vm = weather.begin(vm("aaaa", true));
        assert!(weather.explains(&trouble(Some("no_space"), None), since));
        assert!(!weather.explains(&trouble(Some("internal"), None), since));
        assert!(!weather.explains(&trouble(None, None), since), "another client was cut off");
        assert!(weather.explains(&trouble(Some("guest_unreachable"), Some("aaaa")), since));
        assert!(!weather.explains(&trouble(Some("guest_unreachable"), Some("bbbb")), since));
    }

    #[test]
    fn failed_write_explains_no_dead_vm() {
        let weather = Weather::default();
        let since = Instant::now();
        let _write = weather.begin(Spell::WriteError);
        assert!(weather.explains(&trouble(Some("state_not_saved"), Some("aaaa")), since));
        for code in ["machine_died", "guest_silent", "wrong_state", "boot_failed"] {
            assert!(!weather.explains(&trouble(Some(code), Some("aaaa")), since), "{code}");
        }
        let start = Trouble { starts_vm: true, ..trouble(Some("boot_failed"), Some("aaaa")) };
        assert!(weather.explains(&start, since));
        let _disk = weather.begin(Spell::FullDisk);
        assert!(weather.explains(&trouble(Some("guest_silent"), Some("aaaa")), since));
    }

    #[test]
    fn failed_mail_explains_only_mail() {
        let weather = Weather::default();
        let since = Instant::now();
        let _mail = weather.begin(Spell::MailError);
        assert!(weather.explains(&trouble(Some("mail_not_stored"), None), since));
        assert!(weather.explains(&trouble(Some("no_space"), None), since));
        assert!(!weather.explains(&trouble(Some("no_space"), Some("aaaa")), since), "it was about a VM");
        assert!(!weather.explains(&trouble(Some("state_not_saved"), None), since));
        assert!(!weather.could_affect("aaaa", true, since) && !weather.writes_failed_since(since));
        drop(weather.begin(Spell::WriteError));
        assert!(!weather.explains(&trouble(Some("mail_not_stored"), Some("aaaa")), since));
    }

    #[test]
    fn known_vm_explains_no_failed_fork() {
        let weather = Weather::default();
        let since = Instant::now();
        let fork = Trouble { makes_vms: true, ..trouble(Some("boot_failed"), Some("aaaa")) };
        drop(weather.begin(vm("bbbb", true)));
        assert!(!weather.explains(&fork, since));
        assert!(!weather.could_affect("aaaa", true, since));
        drop(weather.begin(vm("cccc", false)));
        assert!(weather.explains(&fork, since));
        assert!(weather.could_affect("aaaa", true, since));
        assert!(!weather.could_affect("aaaa", false, since));
    }

    #[test]
    fn lost_connection_affects_no_vm() {
        let weather = Weather::default();
        let since = Instant::now();
        drop(weather.begin(Spell::Connection(0)));
        assert!(!weather.could_affect("aaaa", true, since));
        assert!(weather.owners_were_hit_since(since) && !weather.daemon_was_hit_since(since));
        drop(weather.begin(Spell::Pause));
        assert!(weather.could_affect("aaaa", true, since) && weather.daemon_was_hit_since(since));
    }

    #[test]
    fn fault_that_is_over_explains_nothing() {
        let weather = Weather::default();
        drop(weather.begin(Spell::FullDisk));
        std::thread::yield_now();
        assert!(!weather.explains(&trouble(Some("no_space"), None), Instant::now()));
        assert!(weather.was_calm_since(Instant::now()));
    }

    #[test]
    fn passing_fault_keeps_other_marks() {
        let weather = Weather::default();
        let pause = weather.begin_passing(vm("aaaa", true));
        assert!(!weather.is_struck("aaaa"), "a pause does not explain a VM that is found stopped");
        weather.strike("aaaa");
        drop(pause);
        assert!(weather.is_struck("aaaa"), "its guest was made to panic during the pause");
        weather.strike("aaaa");
        weather.forget_strike("aaaa");
        assert!(weather.take_strike("aaaa"));
        weather.forget_strike("aaaa");
        assert!(!weather.is_struck("aaaa"));
    }

    #[test]
    fn strike_explains_one_stop() {
        let weather = Weather::default();
        drop(weather.begin(vm("aaaa", true)));
        assert!(weather.explains(&trouble(Some("wrong_state"), Some("aaaa")), Instant::now()));
        assert!(weather.take_strike("aaaa"));
        assert!(!weather.take_strike("aaaa"));
        assert!(!weather.explains(&trouble(Some("wrong_state"), Some("aaaa")), Instant::now()));
    }
}
