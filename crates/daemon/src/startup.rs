//! The first look of a daemon at its files: the ledger, the directories and the running VMs.
//!
//! [`Startup::read`] brings them in line in memory and removes nothing; [`crate::sweep`] then removes only what a
//! record marks for removal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use agentiso_core::config::{Config, Paths};
use agentiso_core::ids::WorkspaceId;

use crate::ledger::{
    self, Found, Gathered, KeptContent, KeptWorkspace, LedgerError, Marker, Written, gather, keep_aside,
    keep_damaged, remove_marker, remove_temporary, team_directory,
};
use crate::registry::{self, Limits, Listing, Registry};
use crate::sweep::Leftovers;
use crate::vms::{Stray, VmRecord, Vms};

/// Everything known before anything is changed.
#[derive(Debug)]
pub(crate) struct Startup {
    pub(crate) registry: Registry,
    pub(crate) written: Written,
    pub(crate) leftovers: Leftovers,
    uncertain: BTreeSet<WorkspaceId>,
    /// VMs of workspaces that the ledger lists, as the host reports them.
    running: BTreeMap<WorkspaceId, VmRecord>,
}

impl Startup {
    /// Reads everything, marks the directories that go into quarantine, and removes nothing. A newer ledger is an
    /// error, and then nothing was touched.
    pub(crate) fn read(config: &Config, vms: &dyn Vms) -> Result<Self, LedgerError> {
        let (paths, now) = (&config.paths, jiff::Timestamp::now());
        let found = ledger::read(&paths.state_file)?;
        remove_temporary(&paths.state_file)?;
        let survey = ledger::survey(paths)?;
        let damaged = matches!(found, Found::Damaged { .. });
        let (written, deleted) = (Written::found(&survey), survey.deleted.clone());
        let mut gathered = gather(found, survey, now);
        let strays = vms.strays();
        let leftovers = leftovers(paths, &mut gathered, strays.clone(), deleted, now);
        if damaged {
            let kept = keep_aside(&paths.state_file, now)?;
            gathered.lines.insert(0, format!("the damaged ledger was kept as {}", kept.display()));
        }
        gathered.note_what_was_mended(now);
        for line in &gathered.lines {
            tracing::error!("{line}");
        }
        gathered.quarantine.mark(paths, gathered.document.revision);
        fix_markers(&gathered, now);
        let written = written.listed_in(&gathered.document);
        let mut registry = registry::from_ledger(&gathered.document, limits(config));
        registry.hold(gathered.quarantine);
        let of_known = strays.into_iter().filter(|stray| !stray.is_template_build());
        let running = of_known.map(|stray| (stray.id, stray.record)).collect();
        Ok(Self { registry, written, leftovers, uncertain: gathered.uncertain, running })
    }

    pub(crate) fn found(&self) -> FoundVms {
        FoundVms { uncertain: self.uncertain.clone(), running: self.running.clone() }
    }
}

/// Facts about a workspace that are not in its registry entry.
#[derive(Debug)]
pub(crate) struct FoundVms {
    uncertain: BTreeSet<WorkspaceId>,
    running: BTreeMap<WorkspaceId, VmRecord>,
}

impl FoundVms {
    pub(crate) fn listing(&self, id: &WorkspaceId) -> Listing {
        if self.uncertain.contains(id) { Listing::Uncertain } else { Listing::Complete }
    }

    pub(crate) fn vm(&self, id: &WorkspaceId) -> Option<&VmRecord> {
        self.running.get(id)
    }
}

fn limits(config: &Config) -> Limits {
    Limits {
        resources: config.resource_limits(),
        max_workspaces: config.resources.max_workspaces,
        max_total_vms: config.resources.max_total_vms,
        subnet: config.subnet(),
    }
}

/// Sorts the running VMs into those that a record marks for removal and those that stay. A VM of which nothing is
/// known stays too and is listed with the quarantine.
fn leftovers(
    paths: &Paths,
    gathered: &mut Gathered,
    strays: Vec<Stray>,
    deleted: Vec<PathBuf>,
    now: jiff::Timestamp,
) -> Leftovers {
    let mut doomed = Vec::new();
    let mut known: BTreeSet<WorkspaceId> = gathered.document.workspaces.keys().copied().collect();
    for stray in strays {
        let deleted_name = agentiso_sys::files::deleted_name(&paths.workspace_data(&stray.id));
        let condemned = gathered.leftover.contains(&stray.id) || deleted.contains(&deleted_name);
        if stray.is_template_build() || condemned {
            doomed.push(stray);
            continue;
        }
        if !known.contains(&stray.id) && !gathered.quarantine.workspaces.contains_key(&stray.id) {
            let reason = format!("its VM is running (pid {}) but has no directory here", stray.record.pid);
            gathered.lines.push(format!("workspace {} is in quarantine: {reason}", stray.id));
            let kept = KeptWorkspace { marker: Marker { since: now, reason }, content: KeptContent::VmOnly };
            gathered.quarantine.workspaces.insert(stray.id, kept);
        }
        known.insert(stray.id);
    }
    let mut directories: Vec<PathBuf> = gathered.leftover.iter().map(|id| paths.workspace_data(id)).collect();
    for team in &gathered.leftover_teams {
        // The mail goes first: while the team's directory exists, the mail is known to belong to it.
        directories.extend([paths.mail.join(team.to_string()), team_directory(paths, team)]);
    }
    // A workspace that is recovered before the sweep gets here keeps its sockets.
    known.extend(gathered.quarantine.workspaces.keys().copied());
    Leftovers::new(paths, &known, doomed, directories, deleted)
}

/// Removes the marks of directories that were recovered, and moves unreadable descriptions out of the way.
fn fix_markers(gathered: &Gathered, now: jiff::Timestamp) {
    for directory in &gathered.recovered {
        if let Err(error) = remove_marker(directory) {
            tracing::warn!(%error, "cannot remove the mark of a recovered directory");
        }
    }
    for directory in &gathered.damaged {
        if let Err(error) = keep_damaged(directory, now) {
            tracing::warn!(%error, "cannot set aside an unreadable description");
        }
    }
}
