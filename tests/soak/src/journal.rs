//! The journal of a run: a line per event, and the findings. Both are written to the evidence directory at once, so
//! that they survive any end of the run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Acknowledged data is missing or changed.
    Lost,
    /// Something was not removed.
    Leaked,
    /// An error or a missing answer that no fault explains.
    Unexpected,
}

#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

#[derive(Debug)]
struct Inner {
    log: File,
    findings: Vec<Finding>,
    findings_file: File,
    deeds: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    checks: u64,
    most_workspaces: usize,
}

#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) dir: PathBuf,
    begun: Instant,
    inner: Mutex<Inner>,
}

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) deeds: BTreeMap<String, u64>,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) checks: u64,
    /// The most workspaces that the daemon listed at one time.
    pub(crate) most_workspaces: usize,
    pub(crate) findings: Vec<Finding>,
}

impl Journal {
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let file = |name: &str| File::create(dir.join(name)).with_context(|| format!("creating {name}"));
        let inner = Inner {
            log: file("operations.log")?,
            findings: Vec::new(),
            findings_file: file("findings.log")?,
            deeds: BTreeMap::new(),
            faults: BTreeMap::new(),
            checks: 0,
            most_workspaces: 0,
        };
        Ok(Self { dir: dir.to_owned(), begun: Instant::now(), inner: Mutex::new(inner) })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one line about an event.
    pub(crate) fn note(&self, who: &str, text: &str) {
        let line = format!("{:8.2} {who:6} {text}\n", self.begun.elapsed().as_secs_f64());
        // A log that cannot be written must not end the run. Findings are kept in memory as well.
        let _ = self.inner().log.write_all(line.as_bytes());
    }

    #[expect(clippy::print_stderr, reason = "a finding is printed as soon as it is made")]
    pub(crate) fn find(&self, kind: Kind, who: &str, text: &str) {
        self.note(who, &format!("FOUND {kind:?}: {text}"));
        let line = format!("{:8.2} {kind:?} {who}: {text}", self.begun.elapsed().as_secs_f64());
        eprintln!("{line}");
        let mut inner = self.inner();
        let _ = writeln!(inner.findings_file, "{line}");
        inner.findings.push(Finding { kind, text: format!("{who}: {text}") });
    }

    pub(crate) fn count_deed(&self, name: String) {
        *self.inner().deeds.entry(name).or_default() += 1;
    }

    pub(crate) fn count_fault(&self, name: &str) {
        *self.inner().faults.entry(name.to_owned()).or_default() += 1;
    }

    /// Counts a comparison of a workspace or a snapshot with the model.
    pub(crate) fn count_check(&self) {
        self.inner().checks += 1;
    }

    /// Records how many workspaces the daemon listed.
    pub(crate) fn saw_workspaces(&self, there: usize) {
        let most = &mut self.inner().most_workspaces;
        *most = there.max(*most);
    }

    pub(crate) fn counts(&self) -> Counts {
        let inner = self.inner();
        Counts {
            deeds: inner.deeds.clone(),
            faults: inner.faults.clone(),
            checks: inner.checks,
            most_workspaces: inner.most_workspaces,
            findings: inner.findings.clone(),
        }
    }

    pub(crate) fn operations(&self) -> u64 {
        self.inner().deeds.values().sum()
    }
}
