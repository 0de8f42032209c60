//! Which faults are under way, and what they explain.
//!
//! A fault is a *spell*: it begins, and ends when the storm has seen that the server answers again. A call that failed is
//! explained only by a spell that overlaps it and that can have such an effect on what the call was about. A machine that
//! was hit stays marked until its owner has found it stopped.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::plan::Deed;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spell {
    /// The daemon ends, and another one starts.
    Restart,
    /// The daemon stands still.
    Pause,
    /// The connection of this client ends.
    Connection(usize),
    /// This machine ends or stands still.
    Machine {
        /// The first digits of its id.
        short: String,
        /// Whether a client knew it as its own when it was hit. One that is still being made is in no client's model.
        is_known: bool,
    },
    /// The host's disk has no room.
    FullDisk,
    /// A write of the daemon fails, to the ledger or to a file that describes a disk.
    WriteError,
    /// A write of the daemon to the mail of a team fails.
    MailError,
}

/// What a call was about when it failed.
#[derive(Clone, Debug)]
pub(crate) struct Trouble<'a> {
    /// The error's code; `None` if no answer came.
    pub(crate) code: Option<&'a str>,
    pub(crate) client: usize,
    pub(crate) machine: Option<&'a str>,
    /// Whether the call makes machines whose ids are not known yet.
    pub(crate) makes_machines: bool,
    /// Whether the call starts a machine that is known.
    pub(crate) starts_machine: bool,
}

/// What a call may say about a machine that ended, or stands still.
const OF_MACHINES: [&str; 9] = [
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

/// What a call may say while the host's disk is full. QEMU cannot write either, so machines stand still.
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

/// What a call may say if one write of the daemon failed: to the ledger, or to a file that describes a disk. No machine
/// notices it.
const OF_WRITES: [&str; 5] =
    ["no_space", "state_not_saved", "snapshot_failed", "destroy_failed", "fork_failed"];

/// What a call may say if a write to an inbox failed. Machines have no part in it.
const OF_MAIL: [&str; 2] = ["no_space", "mail_not_stored"];

/// What a call that starts a machine may say besides: the file was one of those that a start writes.
const OF_WRITES_AT_START: &str = "boot_failed";

/// What a call may say while a daemon ends or has just started.
const OF_RESTARTS: [&str; 5] =
    ["shutting_down", "cancelled", "still_attaching", "machine_died", "guest_unreachable"];

impl Spell {
    fn explains(&self, trouble: &Trouble<'_>) -> bool {
        match (self, trouble.code) {
            (Self::Restart, None) => true,
            (Self::Restart, Some(code)) => OF_RESTARTS.contains(&code),
            (Self::Connection(client), None | Some("cancelled")) => *client == trouble.client,
            (Self::Machine { .. }, Some(code)) => {
                OF_MACHINES.contains(&code) && self.is_about(trouble.machine, trouble.makes_machines)
            }
            (Self::FullDisk, Some(code)) => OF_FULL_DISKS.contains(&code),
            (Self::WriteError, Some(code)) => {
                let starts = trouble.makes_machines || trouble.starts_machine;
                OF_WRITES.contains(&code) || starts && code == OF_WRITES_AT_START
            }
            (Self::MailError, Some(code)) => {
                OF_MAIL.contains(&code) && trouble.machine.is_none() && !trouble.makes_machines
            }
            (
                Self::Pause | Self::Machine { .. } | Self::FullDisk | Self::WriteError | Self::MailError,
                None,
            )
            | (Self::Connection(_) | Self::Pause, Some(_)) => false,
        }
    }

    /// Whether it is of this machine, or of one that a call was making at the time.
    fn is_about(&self, machine: Option<&str>, makes_machines: bool) -> bool {
        match self {
            Self::Machine { short, is_known } => {
                machine == Some(short.as_str()) || makes_machines && !is_known
            }
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
    struck: BTreeSet<String>,
    wanted: Option<Deed>,
}

#[derive(Debug, Default)]
pub(crate) struct Weather(Mutex<Inner>);

/// A spell that is under way; it ends when this is dropped.
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
        let mut inner = self.inner();
        if let Spell::Machine { short, .. } = &spell {
            inner.struck.insert(short.clone());
        }
        inner.spells.push(Logged { spell, began: Instant::now(), ended: None });
        UnderWay { weather: self, at: inner.spells.len() - 1 }
    }

    /// Marks a machine as one that may be found stopped.
    pub(crate) fn strike(&self, short: &str) {
        self.inner().struck.insert(short.to_owned());
    }

    /// Whether the machine was hit since it was last found stopped. The mark goes.
    pub(crate) fn take_strike(&self, short: &str) -> bool {
        self.inner().struck.remove(short)
    }

    pub(crate) fn is_struck(&self, short: &str) -> bool {
        self.inner().struck.contains(short)
    }

    /// Whether a call that began at `since` and failed now is explained by a fault.
    pub(crate) fn explains(&self, trouble: &Trouble<'_>, since: Instant) -> bool {
        let was_struck = trouble.machine.is_some_and(|short| {
            let strike = Spell::Machine { short: short.to_owned(), is_known: true };
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

    /// Whether no fault was under way at any time since.
    pub(crate) fn was_calm_since(&self, since: Instant) -> bool {
        !self.any_since(since, |_| true)
    }

    /// Whether a fault since can have kept a machine from coming up as it should: this one, or one that was being made.
    /// A daemon that stood still finds its deadlines gone, and one that could not write starts a machine in another way.
    pub(crate) fn could_affect(&self, machine: &str, makes_machines: bool, since: Instant) -> bool {
        self.is_struck(machine)
            || self.any_since(since, |spell| match spell {
                Spell::Restart | Spell::Pause | Spell::FullDisk | Spell::WriteError => true,
                Spell::Machine { .. } => spell.is_about(Some(machine), makes_machines),
                Spell::Connection(_) | Spell::MailError => false,
            })
    }

    /// Whether a daemon ended or stood still since.
    pub(crate) fn daemon_was_hit_since(&self, since: Instant) -> bool {
        self.any_since(since, |spell| matches!(spell, Spell::Restart | Spell::Pause))
    }

    /// Whether a fault since can have left workspaces without an owner who is connected.
    pub(crate) fn owners_were_hit_since(&self, since: Instant) -> bool {
        self.any_since(since, |spell| matches!(spell, Spell::Restart | Spell::Pause | Spell::Connection(_)))
    }

    /// Whether the daemon may have failed to write something since.
    pub(crate) fn writes_failed_since(&self, since: Instant) -> bool {
        self.any_since(since, |spell| matches!(spell, Spell::FullDisk | Spell::WriteError))
    }

    /// Has a client carry out this deed next, whatever its own plan says.
    pub(crate) fn want(&self, deed: Option<Deed>) {
        self.inner().wanted = deed;
    }

    pub(crate) fn take_wanted(&self) -> Option<Deed> {
        self.inner().wanted.take()
    }

    /// What was under way at some time since, for the evidence of a finding.
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

    fn trouble<'a>(code: Option<&'a str>, machine: Option<&'a str>) -> Trouble<'a> {
        Trouble { code, client: 0, machine, makes_machines: false, starts_machine: false }
    }

    fn machine(short: &str, is_known: bool) -> Spell {
        Spell::Machine { short: short.to_owned(), is_known }
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
        let _machine = weather.begin(machine("aaaa", true));
        assert!(weather.explains(&trouble(Some("no_space"), None), since));
        assert!(!weather.explains(&trouble(Some("internal"), None), since));
        assert!(!weather.explains(&trouble(None, None), since), "another client was cut off");
        assert!(weather.explains(&trouble(Some("guest_unreachable"), Some("aaaa")), since));
        assert!(!weather.explains(&trouble(Some("guest_unreachable"), Some("bbbb")), since));
    }

    #[test]
    fn failed_write_explains_no_dead_machine() {
        let weather = Weather::default();
        let since = Instant::now();
        let _write = weather.begin(Spell::WriteError);
        assert!(weather.explains(&trouble(Some("state_not_saved"), Some("aaaa")), since));
        for code in ["machine_died", "guest_silent", "wrong_state", "boot_failed"] {
            assert!(!weather.explains(&trouble(Some(code), Some("aaaa")), since), "{code}");
        }
        let start = Trouble { starts_machine: true, ..trouble(Some("boot_failed"), Some("aaaa")) };
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
        assert!(!weather.explains(&trouble(Some("no_space"), Some("aaaa")), since), "it was about a machine");
        assert!(!weather.explains(&trouble(Some("state_not_saved"), None), since));
        assert!(!weather.could_affect("aaaa", true, since) && !weather.writes_failed_since(since));
        drop(weather.begin(Spell::WriteError));
        assert!(!weather.explains(&trouble(Some("mail_not_stored"), Some("aaaa")), since));
    }

    #[test]
    fn known_machine_explains_no_failed_fork() {
        let weather = Weather::default();
        let since = Instant::now();
        let fork = Trouble { makes_machines: true, ..trouble(Some("boot_failed"), Some("aaaa")) };
        drop(weather.begin(machine("bbbb", true)));
        assert!(!weather.explains(&fork, since));
        assert!(!weather.could_affect("aaaa", true, since));
        drop(weather.begin(machine("cccc", false)));
        assert!(weather.explains(&fork, since));
        assert!(weather.could_affect("aaaa", true, since));
        assert!(!weather.could_affect("aaaa", false, since));
    }

    #[test]
    fn lost_connection_affects_no_machine() {
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
    fn strike_explains_one_stop() {
        let weather = Weather::default();
        drop(weather.begin(machine("aaaa", true)));
        assert!(weather.explains(&trouble(Some("wrong_state"), Some("aaaa")), Instant::now()));
        assert!(weather.take_strike("aaaa"));
        assert!(!weather.take_strike("aaaa"));
        assert!(!weather.explains(&trouble(Some("wrong_state"), Some("aaaa")), Instant::now()));
    }
}
