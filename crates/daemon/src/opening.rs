//! What a daemon finds when it opens: the ledger, the directories, the machines that run. It is put in agreement on
//! paper first; [`crate::sweep`] then removes what a record says is to go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use agentiso_core::config::{Config, Paths};
use agentiso_core::ids::WorkspaceId;

use crate::ledger::{
    self, Found, Gathered, KeptContent, KeptWorkspace, LedgerError, Marker, Written, gather, keep_aside,
    keep_damaged, remove_marker, remove_temporary, team_directory,
};
use crate::machines::{MachineRecord, Machines, Stray};
use crate::registry::{self, Books, Limits, Registry};
use crate::sweep::Leftovers;

/// All that is known before anything is done.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) registry: Registry,
    pub(crate) written: Written,
    pub(crate) leftovers: Leftovers,
    uncertain: BTreeSet<WorkspaceId>,
    /// Machines of workspaces that the ledger knows, as the host has them.
    running: BTreeMap<WorkspaceId, MachineRecord>,
}

impl Opening {
    /// Reads everything, marks what goes into quarantine, and removes nothing. A newer ledger is an error, and then
    /// nothing was touched.
    pub(crate) fn look(config: &Config, machines: &dyn Machines) -> Result<Self, LedgerError> {
        let (paths, now) = (&config.paths, jiff::Timestamp::now());
        let found = ledger::read(&paths.state_file)?;
        remove_temporary(&paths.state_file)?;
        let survey = ledger::survey(paths)?;
        let damaged = matches!(found, Found::Damaged { .. });
        let (written, deleted) = (Written::found(&survey), survey.deleted.clone());
        let mut gathered = gather(found, survey, now);
        let strays = machines.strays();
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
        put_marks_right(&gathered, now);
        let written = written.listed_in(&gathered.document);
        let mut registry = registry::from_ledger(&gathered.document, limits(config));
        registry.hold(gathered.quarantine);
        let of_known = strays.into_iter().filter(|stray| !stray.is_template_build());
        let running = of_known.map(|stray| (stray.id, stray.record)).collect();
        Ok(Self { registry, written, leftovers, uncertain: gathered.uncertain, running })
    }

    pub(crate) fn found(&self) -> FoundMachines {
        FoundMachines { uncertain: self.uncertain.clone(), running: self.running.clone() }
    }
}

/// What is to be known about a workspace beside its entry.
#[derive(Debug)]
pub(crate) struct FoundMachines {
    uncertain: BTreeSet<WorkspaceId>,
    running: BTreeMap<WorkspaceId, MachineRecord>,
}

impl FoundMachines {
    pub(crate) fn books(&self, id: &WorkspaceId) -> Books {
        if self.uncertain.contains(id) { Books::Uncertain } else { Books::Complete }
    }

    pub(crate) fn machine(&self, id: &WorkspaceId) -> Option<&MachineRecord> {
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

/// Sorts the machines that run: those whose end a record asks for, and those that stay. A machine of which nothing is
/// known stays too, and is shown with the quarantine.
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
        let deleted_name = agentiso_host::files::deleted_name(&paths.workspace_data(&stray.id));
        let condemned = gathered.leftover.contains(&stray.id) || deleted.contains(&deleted_name);
        if stray.is_template_build() || condemned {
            doomed.push(stray);
            continue;
        }
        if !known.contains(&stray.id) && !gathered.quarantine.workspaces.contains_key(&stray.id) {
            let reason = format!("a machine runs (pid {}) and has no directory here", stray.record.pid);
            gathered.lines.push(format!("workspace {} is in quarantine: {reason}", stray.id));
            let kept =
                KeptWorkspace { marker: Marker { since: now, reason }, content: KeptContent::MachineOnly };
            gathered.quarantine.workspaces.insert(stray.id, kept);
        }
        known.insert(stray.id);
    }
    let mut directories: Vec<PathBuf> = gathered.leftover.iter().map(|id| paths.workspace_data(id)).collect();
    for team in &gathered.leftover_teams {
        // The mail first: while the team is there, its mail is known to be its own.
        directories.extend([paths.mail.join(team.to_string()), team_directory(paths, team)]);
    }
    // One that is recovered before the sweep has come this far keeps its sockets.
    known.extend(gathered.quarantine.workspaces.keys().copied());
    Leftovers::new(paths, &known, doomed, directories, deleted)
}

/// Directories that were recovered lose their mark; descriptions that cannot be read make room.
fn put_marks_right(gathered: &Gathered, now: jiff::Timestamp) {
    for directory in &gathered.recovered {
        if let Err(error) = remove_marker(directory) {
            tracing::warn!(%error, "a directory that was recovered is still marked");
        }
    }
    for directory in &gathered.damaged {
        if let Err(error) = keep_damaged(directory, now) {
            tracing::warn!(%error, "a description that cannot be read was not kept aside");
        }
    }
}
