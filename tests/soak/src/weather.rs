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
    /// This machine ends or stands still, by the first digits of its id.
    Machine(String),
    /// The host's disk has no room.
    FullDisk,
    /// A write of the daemon fails.
    WriteError,
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

/// What a call may say while the host cannot write.
const OF_DISKS: [&str; 9] = [
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

/// What a call may say while a daemon ends or has just started.
const OF_RESTARTS: [&str; 5] =
    ["shutting_down", "cancelled", "still_attaching", "machine_died", "guest_unreachable"];

impl Spell {
    fn explains(&self, trouble: &Trouble<'_>) -> bool {
        match (self, trouble.code) {
            (Self::Restart, None) => true,
            (Self::Restart, Some(code)) => OF_RESTARTS.contains(&code),
            (Self::Connection(client), None | Some("cancelled")) => *client == trouble.client,
            (Self::Machine(short), Some(code)) => {
                OF_MACHINES.contains(&code)
                    && (trouble.makes_machines || trouble.machine == Some(short.as_str()))
            }
            (Self::FullDisk | Self::WriteError, Some(code)) => OF_DISKS.contains(&code),
            (Self::Pause | Self::Machine(_) | Self::FullDisk | Self::WriteError, None)
            | (Self::Connection(_) | Self::Pause, Some(_)) => false,
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
        if let Spell::Machine(short) = &spell {
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
        let inner = self.inner();
        let overlapping = inner.spells.iter().filter(|logged| logged.ended.is_none_or(|end| end >= since));
        let mut spells = overlapping.map(|logged| &logged.spell);
        let was_struck = trouble.machine.is_some_and(|short| {
            inner.struck.contains(short) && Spell::Machine(short.to_owned()).explains(trouble)
        });
        was_struck || spells.any(|spell| spell.explains(trouble))
    }

    /// Whether no fault was under way at any time since.
    pub(crate) fn was_calm_since(&self, since: Instant) -> bool {
        let inner = self.inner();
        !inner.spells.iter().any(|logged| logged.ended.is_none_or(|end| end >= since))
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
        Trouble { code, client: 0, machine, makes_machines: false }
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
        let _machine = weather.begin(Spell::Machine("aaaa".to_owned()));
        assert!(weather.explains(&trouble(Some("no_space"), None), since));
        assert!(!weather.explains(&trouble(Some("internal"), None), since));
        assert!(!weather.explains(&trouble(None, None), since), "another client was cut off");
        assert!(weather.explains(&trouble(Some("guest_unreachable"), Some("aaaa")), since));
        assert!(!weather.explains(&trouble(Some("guest_unreachable"), Some("bbbb")), since));
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
        drop(weather.begin(Spell::Machine("aaaa".to_owned())));
        assert!(weather.explains(&trouble(Some("wrong_state"), Some("aaaa")), Instant::now()));
        assert!(weather.take_strike("aaaa"));
        assert!(!weather.take_strike("aaaa"));
        assert!(!weather.explains(&trouble(Some("wrong_state"), Some("aaaa")), Instant::now()));
    }
}
