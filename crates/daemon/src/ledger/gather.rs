//! Decides which workspaces and teams exist, from the ledger and from the descriptions in the directories. It works
//! on values, without I/O.
//!
//! The ledger is an index. A directory that it lacks is entered again from its description, and so is an entry that
//! cannot be read. If there is no ledger at all, a person removed it to start empty: then every directory goes into
//! the quarantine, from which it can be recovered. Directories without a usable description go there too. Only
//! directories that a record marks as unfinished or as being removed are leftovers and get removed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use agentiso_core::ids::{SessionId, SnapshotId, WorkspaceId};
use agentiso_core::team::Team;

use super::description::{Described, DescribedOwner, DescribedWorkspace, Holds, Marker, TeamKey};
use super::file::Found;
use super::quarantine::{KeptContent, KeptTeam, KeptWorkspace, Quarantine};
use super::schema::{Counters, LedgerDocument, Mended, SCHEMA_VERSION, StoredSession};
use super::survey::{FoundTeam, FoundWorkspace, Survey};

/// The most lines of a report in the ledger: enough to see what happened, too few to make the ledger grow. The log
/// has them all.
const MAX_LINES: usize = 200;

/// The state that a start works with.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) document: LedgerDocument,
    /// Workspaces whose entries may lack something: every snapshot on their disks is kept.
    pub(crate) uncertain: BTreeSet<WorkspaceId>,
    pub(crate) quarantine: Quarantine,
    /// Directories of workspaces that a record marks for removal.
    pub(crate) leftover: BTreeSet<WorkspaceId>,
    /// Directories of teams that a record marks for removal.
    pub(crate) leftover_teams: Vec<TeamKey>,
    /// Directories that are marked although the ledger lists them: they were recovered.
    pub(crate) recovered: Vec<PathBuf>,
    /// Directories whose description is replaced from the ledger.
    pub(crate) damaged: Vec<PathBuf>,
    /// A line for each problem that was found.
    pub(crate) lines: Vec<String>,
}

pub(crate) fn gather(found: Found, survey: Survey, now: jiff::Timestamp) -> Gathered {
    let absent = matches!(found, Found::Absent);
    let (document, problems) = match found {
        Found::Absent => (blank(now), Vec::new()),
        Found::Whole(document) => (*document, Vec::new()),
        Found::Damaged { document, problems } => (document.map_or_else(|| blank(now), |d| *d), problems),
    };
    let highest = highest_revision(&survey);
    let on_disk = survey.workspaces.iter().filter(|directory| !directory.empty);
    let on_disk = on_disk.map(|directory| directory.id).collect();
    let mut gathering = Gathering {
        absent,
        now,
        revision: document.revision,
        owners: owners(&document),
        on_disk,
        gathered: Gathered {
            document,
            uncertain: BTreeSet::new(),
            quarantine: Quarantine::default(),
            leftover: BTreeSet::new(),
            leftover_teams: Vec::new(),
            recovered: Vec::new(),
            damaged: Vec::new(),
            lines: problems.into_iter().map(|problem| format!("the ledger is damaged: {problem}")).collect(),
        },
    };
    survey.workspaces.into_iter().for_each(|directory| gathering.workspace(directory));
    let mut teams = survey.teams;
    // A name belongs to the team in the ledger, else to the team whose description was written last.
    teams.sort_by_key(|directory| {
        let listed = gathering.gathered.document.teams.get(&directory.key.name);
        let is_listed = listed.is_some_and(|team| team.created_at == directory.key.created_at);
        (!is_listed, std::cmp::Reverse(team_revision(directory)))
    });
    teams.into_iter().for_each(|directory| gathering.team(directory));
    gathering.set_contradictions_aside();
    let (mut gathered, owners) = (gathering.gathered, gathering.owners);
    let document = &mut gathered.document;
    document.revision = document.revision.max(highest);
    document.sessions = sessions(owners);
    document.counters.workspaces_created =
        document.counters.workspaces_created.max(document.workspaces.len() as u64);
    gathered
}

impl Gathered {
    /// Puts the report into the ledger, for `agentiso status` and `agentiso check`. Without a new report, the old
    /// one stays.
    pub(crate) fn note_what_was_mended(&mut self, now: jiff::Timestamp) {
        if self.lines.is_empty() {
            return;
        }
        let mut lines: Vec<String> = self.lines.iter().take(MAX_LINES).cloned().collect();
        if self.lines.len() > MAX_LINES {
            lines.push(format!("and {} more, which are in the log", self.lines.len() - MAX_LINES));
        }
        self.document.mended = Some(Mended { at: now, lines });
    }
}

/// An empty ledger.
fn blank(now: jiff::Timestamp) -> LedgerDocument {
    LedgerDocument {
        schema_version: SCHEMA_VERSION,
        saved_at: now,
        revision: 0,
        workspaces: BTreeMap::new(),
        sessions: Vec::new(),
        teams: Default::default(),
        counters: Counters::default(),
        mended: None,
    }
}

fn highest_revision(survey: &Survey) -> u64 {
    let workspaces = survey.workspaces.iter().map(|directory| match &directory.described {
        Described::Read(description) => description.revision,
        Described::Missing | Described::Newer(_) | Described::Damaged(_) => 0,
    });
    workspaces.chain(survey.teams.iter().map(team_revision)).max().unwrap_or(0)
}

fn team_revision(directory: &FoundTeam) -> u64 {
    match &directory.described {
        Described::Read(description) => description.revision,
        Described::Missing | Described::Newer(_) | Described::Damaged(_) => 0,
    }
}

type Owners = BTreeMap<WorkspaceId, DescribedOwner>;

fn owners(document: &LedgerDocument) -> Owners {
    let mut owners = Owners::new();
    for session in &document.sessions {
        let owner = DescribedOwner { session_id: session.session_id.clone(), created_at: session.created_at };
        for id in &session.workspace_ids {
            owners.entry(*id).or_insert_with(|| owner.clone());
        }
    }
    owners
}

fn sessions(owners: Owners) -> Vec<StoredSession> {
    let mut sessions: BTreeMap<SessionId, StoredSession> = BTreeMap::new();
    for (id, owner) in owners {
        let session = sessions.entry(owner.session_id.clone()).or_insert_with(|| StoredSession {
            session_id: owner.session_id,
            workspace_ids: Vec::new(),
            created_at: owner.created_at,
        });
        session.workspace_ids.push(id);
    }
    sessions.into_values().collect()
}

struct Gathering {
    absent: bool,
    now: jiff::Timestamp,
    /// The revision of the ledger.
    revision: u64,
    owners: Owners,
    /// The workspaces whose directory is not empty.
    on_disk: BTreeSet<WorkspaceId>,
    gathered: Gathered,
}

impl Gathering {
    fn workspace(&mut self, directory: FoundWorkspace) {
        let FoundWorkspace { id, path, described, marker, empty } = directory;
        let listed = self.gathered.document.workspaces.contains_key(&id);
        if let Some(marker) = marker {
            if !listed {
                let kept = KeptWorkspace { marker, content: content(described) };
                self.gathered.quarantine.workspaces.insert(id, kept);
                return;
            }
            self.gathered.recovered.push(path.clone());
        }
        match (described, listed) {
            (Described::Newer(format), _) => {
                self.quarantine(
                    id,
                    format!("its description was written by a newer agentiso (format {format})"),
                    KeptContent::Newer(format),
                );
            }
            (Described::Read(description), true) => match description.holds {
                Holds::Workspace(workspace) if description.revision > self.revision => {
                    let name = &workspace.entry.name;
                    self.gathered.lines.push(format!(
                        "workspace {name} ({id}) was read from its directory, which is newer than the ledger"
                    ));
                    self.enter(id, *workspace);
                }
                // The ledger wins over a description that is not newer.
                Holds::Workspace(workspace) => self.look_for_lost_snapshots(id, &workspace),
                Holds::Standby | Holds::Scratch => drop(self.gathered.uncertain.insert(id)),
            },
            (Described::Missing, true) => drop(self.gathered.uncertain.insert(id)),
            (Described::Damaged(problem), true) => {
                self.gathered.lines.push(format!(
                    "the description of workspace {id} cannot be read ({problem}); it was set aside, and the ledger is used instead"
                ));
                self.gathered.uncertain.insert(id);
                self.gathered.damaged.push(path);
            }
            (Described::Read(description), false) => match description.holds {
                Holds::Workspace(workspace) if self.absent && !workspace.is_meant_to_go() => {
                    let reason = "there was no state file when the daemon started".to_owned();
                    self.quarantine(id, reason, KeptContent::Described(workspace));
                }
                Holds::Workspace(workspace) if !self.absent => {
                    let name = &workspace.entry.name;
                    self.gathered.lines.push(format!(
                        "workspace {name} ({id}) was read from its directory, because the ledger did not list it"
                    ));
                    self.enter(id, *workspace);
                }
                Holds::Workspace(_) | Holds::Standby | Holds::Scratch => {
                    self.gathered.leftover.insert(id);
                }
            },
            (Described::Missing, false) if empty => drop(self.gathered.leftover.insert(id)),
            (Described::Missing, false) => {
                let reason = "it is not in the ledger and has no description".to_owned();
                self.quarantine(id, reason, KeptContent::Undescribed);
            }
            (Described::Damaged(problem), false) => {
                let reason =
                    format!("it is not in the ledger, and its description cannot be read: {problem}");
                self.quarantine(id, reason, KeptContent::Undescribed);
            }
        }
    }

    fn team(&mut self, directory: FoundTeam) {
        let FoundTeam { key, path, described, marker } = directory;
        let name = key.name.clone();
        // Another team may have the same name.
        let namesake = self.gathered.document.teams.get(&name).map(|team| team.created_at);
        let listed = namesake == Some(key.created_at);
        if marker.is_some() && listed {
            self.gathered.recovered.push(path);
        }
        let (described, problem) = match described {
            Described::Read(description) => (Some(description), None),
            Described::Missing => (None, Some("it has no description".to_owned())),
            Described::Newer(format) => {
                (None, Some(format!("its description was written by a newer agentiso (format {format})")))
            }
            Described::Damaged(problem) => (None, Some(format!("its description cannot be read: {problem}"))),
        };
        match (described, marker.filter(|_| !listed)) {
            (described, Some(marker)) => {
                let team = described.map(|description| description.team);
                self.gathered.quarantine.teams.insert(key, KeptTeam { marker, team });
            }
            (Some(description), None) if listed && description.revision <= self.revision => {}
            (Some(description), None) if !listed && namesake.is_some() => {
                if description.is_meant_to_go() {
                    self.gathered.leftover_teams.push(key);
                } else {
                    let reason = format!("another team is named {name}");
                    self.quarantine_team(key, reason, Some(description.team));
                }
            }
            (Some(description), None) if listed || !self.absent => {
                let why = if listed {
                    "which is newer than the ledger"
                } else {
                    "because the ledger did not list it"
                };
                self.gathered.lines.push(format!("team {name} was read from its directory, {why}"));
                self.gathered.document.teams.remove(&name);
                self.gathered.document.teams.restore(name, description.team);
            }
            (Some(description), None) if description.is_meant_to_go() => {
                self.gathered.leftover_teams.push(key);
            }
            (Some(description), None) => {
                let reason = "there was no state file when the daemon started".to_owned();
                self.quarantine_team(key, reason, Some(description.team));
            }
            // The next save writes a new description from the ledger.
            (None, None) if listed => {}
            (None, None) => {
                self.quarantine_team(key, problem.unwrap_or_default(), None);
            }
        }
    }

    /// A snapshot is removed only because the ledger lists it as being removed. A snapshot that the description
    /// lists and the ledger does not mention was lost, not deleted: the entry is marked uncertain, so that the
    /// snapshot is kept if the disk has it.
    fn look_for_lost_snapshots(&mut self, id: WorkspaceId, described: &DescribedWorkspace) {
        let Some(listed) = self.gathered.document.workspaces.get(&id) else { return };
        let is_listed = |wanted: &SnapshotId| {
            listed.removing.contains(wanted) || listed.snapshots.iter().any(|snapshot| snapshot.id == *wanted)
        };
        let lost = described.entry.snapshots.iter().filter(|snapshot| !is_listed(&snapshot.id));
        for snapshot in lost {
            self.gathered.lines.push(format!(
                "the ledger does not list snapshot {} ({}) of workspace {} ({id}), but its directory does",
                snapshot.name, snapshot.id, listed.name
            ));
            self.gathered.uncertain.insert(id);
        }
    }

    /// Enters a workspace from its description, which may lag behind its disk, so the entry is uncertain.
    fn enter(&mut self, id: WorkspaceId, workspace: DescribedWorkspace) {
        self.gathered.uncertain.insert(id);
        match workspace.owner {
            Some(owner) => drop(self.owners.insert(id, owner)),
            None => drop(self.owners.remove(&id)),
        }
        self.gathered.document.workspaces.insert(id, workspace.entry);
    }

    fn quarantine(&mut self, id: WorkspaceId, reason: String, content: KeptContent) {
        self.gathered.lines.push(format!("workspace {id} is in quarantine: {reason}"));
        self.gathered.document.workspaces.remove(&id);
        self.owners.remove(&id);
        let marker = Marker { since: self.now, reason };
        self.gathered.quarantine.workspaces.insert(id, KeptWorkspace { marker, content });
    }

    fn quarantine_team(&mut self, key: TeamKey, reason: String, team: Option<Team>) {
        self.gathered.lines.push(format!("team {key} is in quarantine: {reason}"));
        let marker = Marker { since: self.now, reason };
        self.gathered.quarantine.teams.insert(key, KeptTeam { marker, team });
    }

    /// Resolves conflicts between two workspaces over something that only one can have: a workspace with a
    /// directory wins, else the older one. An entry without a directory comes from a ledger that was written long
    /// before.
    fn set_contradictions_aside(&mut self) {
        let mut all: Vec<_> = self.gathered.document.workspaces.iter().collect();
        all.sort_by_key(|(id, workspace)| (!self.on_disk.contains(*id), workspace.created_at, **id));
        let (mut names, mut addresses, mut shorts) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut contradictions = Vec::new();
        for (id, workspace) in all {
            let contradiction = if names.contains(&workspace.name) {
                format!("another workspace is named {}", workspace.name)
            } else if addresses.contains(&workspace.ip) {
                format!("another workspace has the address {}", workspace.ip)
            } else if shorts.contains(&id.short()) {
                format!("another workspace has the run directory {}", id.short())
            } else {
                names.insert(&workspace.name);
                addresses.insert(workspace.ip);
                shorts.insert(id.short());
                continue;
            };
            let owner = self.owners.get(id).cloned();
            let described = DescribedWorkspace { owner, entry: workspace.clone() };
            contradictions.push((*id, contradiction, KeptContent::Described(Box::new(described))));
        }
        for (id, reason, content) in contradictions {
            self.quarantine(id, reason, content);
        }
    }
}

fn content(described: Described<super::description::Description>) -> KeptContent {
    match described {
        Described::Read(description) => match description.holds {
            Holds::Workspace(workspace) => KeptContent::Described(workspace),
            Holds::Standby | Holds::Scratch => KeptContent::Undescribed,
        },
        Described::Newer(format) => KeptContent::Newer(format),
        Described::Missing | Described::Damaged(_) => KeptContent::Undescribed,
    }
}
