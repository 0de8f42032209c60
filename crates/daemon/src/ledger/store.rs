//! Saves for many tasks: each waits until its own change is on disk, and one write serves all that wait.
//!
//! A change is made in memory first, then saved: the ledger, then the descriptions of what changed. If saving
//! fails, the task that made the change undoes it (or keeps it, if it already happened outside the ledger), and the
//! store remembers that the files are behind, so that they are written again later. The store does the same if a
//! caller is cancelled before its write begins, because its change is made.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentiso_core::config::Paths;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::lifecycle::Phase;
use agentiso_core::team::Team;
use agentiso_sys::files;
use tokio::sync::Mutex;

use super::description::{
    self, Described, DescribedOwner, DescribedWorkspace, Description, Holds, TeamDescription, TeamKey,
    team_directory, team_file, workspace_file,
};
use super::error::LedgerError;
use super::file;
use super::schema::LedgerDocument;
use super::survey::Survey;

/// The contents of the files on disk.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The revision of the ledger.
    revision: u64,
    workspaces: BTreeMap<WorkspaceId, DescribedWorkspace>,
    teams: BTreeMap<TeamKey, Team>,
}

impl Written {
    /// Starts with the descriptions that already exist, so that a start does not write them all again.
    pub(crate) fn found(survey: &Survey) -> Self {
        let workspaces = survey.workspaces.iter().filter_map(|found| match &found.described {
            Described::Read(Description { holds: Holds::Workspace(workspace), .. }) => {
                Some((found.id, (**workspace).clone()))
            }
            Described::Read(_) | Described::Missing | Described::Newer(_) | Described::Damaged(_) => None,
        });
        let teams = survey.teams.iter().filter_map(|found| match &found.described {
            Described::Read(description) => Some((found.key.clone(), description.team.clone())),
            Described::Missing | Described::Newer(_) | Described::Damaged(_) => None,
        });
        Self { revision: 0, workspaces: workspaces.collect(), teams: teams.collect() }
    }

    /// Drops what the ledger does not list: those directories are in quarantine and must not be touched.
    pub(crate) fn listed_in(mut self, document: &LedgerDocument) -> Self {
        self.revision = document.revision;
        self.workspaces.retain(|id, _| document.workspaces.contains_key(id));
        self.teams.retain(|key, _| is_listed(document, key));
        self
    }
}

#[derive(Debug)]
struct Saved {
    /// The generation that is on disk.
    generation: u64,
    written: Written,
}

#[derive(Debug)]
pub(crate) struct Store {
    paths: Arc<Paths>,
    /// The lock is held while a write runs.
    saved: Arc<Mutex<Saved>>,
    behind: Arc<AtomicBool>,
}

impl Store {
    pub(crate) fn new(paths: Paths, written: Written) -> Self {
        Self {
            paths: Arc::new(paths),
            saved: Arc::new(Mutex::new(Saved { generation: 0, written })),
            behind: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Whether a save failed or was cancelled since the last one that succeeded.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire)
    }

    /// Returns once `generation`, or a later one, is on disk. `take` returns the state and its generation; it is
    /// called when the write begins.
    pub(crate) async fn save(
        &self,
        generation: u64,
        take: impl FnOnce() -> (u64, LedgerDocument),
    ) -> Result<(), LedgerError> {
        let mut unsaved = BehindOnDrop { behind: Arc::clone(&self.behind), armed: true };
        let mut saved = Arc::clone(&self.saved).lock_owned().await;
        if saved.generation >= generation {
            unsaved.armed = false;
            return Ok(());
        }
        // Cleared before the state is taken, never after the write: a change cancelled from here on is not in this
        // file, and one cancelled before is.
        self.behind.store(false, Ordering::Release);
        let (taken, document) = take();
        let paths = Arc::clone(&self.paths);
        // The lock moves into the write: if the caller is cancelled meanwhile, no second write may begin on the
        // same temporary file. The flag moves too, so that it is set however the write fails.
        let write = tokio::task::spawn_blocking(move || {
            let result = saved.written.write(&paths, document);
            if let Ok(described) = &result {
                unsaved.armed = !described;
                saved.generation = taken;
            }
            // Dropped before the lock, so that the flag of this write is set before the next write begins.
            drop(unsaved);
            drop(saved);
            result.map(drop)
        });
        match write.await {
            Ok(result) => result,
            Err(error) => Err(LedgerError::io(&self.paths.state_file, io::Error::other(error))),
        }
    }
}

impl Written {
    /// Writes the ledger, then the descriptions that changed. Returns whether all of those could be written: one
    /// directory that takes no file must not keep all others from being saved, and the ledger has the facts. It is
    /// an error only if the description that stays on disk allows the removal of a directory that the ledger wants
    /// to keep.
    fn write(&mut self, paths: &Paths, mut document: LedgerDocument) -> Result<bool, LedgerError> {
        document.revision = self.revision + 1;
        file::write(&paths.state_file, &document)?;
        self.revision = document.revision;
        let workspaces = self.describe_workspaces(paths, &document);
        let teams = self.describe_teams(paths, &document);
        Ok(workspaces? && teams?)
    }

    fn describe_workspaces(&mut self, paths: &Paths, document: &LedgerDocument) -> Result<bool, LedgerError> {
        let mut owners = BTreeMap::new();
        for session in &document.sessions {
            let owner =
                DescribedOwner { session_id: session.session_id.clone(), created_at: session.created_at };
            owners.extend(session.workspace_ids.iter().map(|id| (*id, owner.clone())));
        }
        self.workspaces.retain(|id, _| document.workspaces.contains_key(id));
        let (mut all, mut fatal) = (true, None);
        for (id, entry) in &document.workspaces {
            let described = DescribedWorkspace { owner: owners.remove(id), entry: entry.clone() };
            let directory = paths.workspace_data(id);
            // A description that was removed by hand is written again, but not into a directory that is being
            // removed.
            let there = || entry.phase == Phase::Destroying || workspace_file(&directory).exists();
            if self.workspaces.get(id) == Some(&described) && there() {
                continue;
            }
            let holds = Holds::Workspace(Box::new(described.clone()));
            let written = make_if_new(&directory, entry.phase).and_then(|there| match there {
                true => {
                    description::write_workspace(&directory, &Description::new(*id, self.revision, holds))
                }
                false => Ok(()),
            });
            match written {
                Ok(()) => drop(self.workspaces.insert(*id, described)),
                Err(error) => {
                    tracing::error!(workspace = %entry.name, %error, "cannot save its description; will retry");
                    all = false;
                    if !described.is_meant_to_go() && allows_removal(&directory, *id) {
                        fatal.get_or_insert(error);
                    }
                }
            }
        }
        fatal.map_or(Ok(all), Err)
    }

    fn describe_teams(&mut self, paths: &Paths, document: &LedgerDocument) -> Result<bool, LedgerError> {
        let (mut all, mut fatal) = (true, None);
        for (name, team) in document.teams.iter() {
            let key = TeamKey::of(name, team);
            let directory = team_directory(paths, &key);
            // A description that was removed by hand is written again.
            if self.teams.get(&key) == Some(team) && team_file(&directory).exists() {
                continue;
            }
            let description = TeamDescription::new(name.clone(), self.revision, team.clone());
            let written = make(&directory).and_then(|()| description::write_team(&directory, &description));
            match written {
                Ok(()) => drop(self.teams.insert(key, team.clone())),
                Err(error) => {
                    tracing::error!(team = %name, %error, "cannot save its description; will retry");
                    all = false;
                    if !description.is_meant_to_go() && allows_team_removal(&directory, &key) {
                        fatal.get_or_insert(error);
                    }
                }
            }
        }
        // The ledger that was just written no longer lists these teams.
        let gone: Vec<TeamKey> = self.teams.keys().filter(|key| !is_listed(document, key)).cloned().collect();
        for key in gone {
            match files::discard_dir(&team_directory(paths, &key)) {
                Ok(()) => drop(self.teams.remove(&key)),
                Err(error) => {
                    tracing::error!(team = %key, %error, "cannot remove the description of a destroyed team; will retry");
                    all = false;
                }
            }
        }
        fatal.map_or(Ok(all), Err)
    }
}

fn is_listed(document: &LedgerDocument, key: &TeamKey) -> bool {
    document.teams.get(&key.name).is_some_and(|team| team.created_at == key.created_at)
}

/// Whether the description on disk allows the removal of the directory.
fn allows_removal(directory: &Path, id: WorkspaceId) -> bool {
    match description::read_workspace(directory, id) {
        Ok(Described::Read(description)) => match description.holds {
            Holds::Workspace(workspace) => workspace.is_meant_to_go(),
            Holds::Standby | Holds::Scratch => true,
        },
        // A directory without a description goes into quarantine.
        Ok(Described::Missing | Described::Newer(_) | Described::Damaged(_)) | Err(_) => false,
    }
}

/// Whether the description on disk allows the removal of the team's directory.
fn allows_team_removal(directory: &Path, key: &TeamKey) -> bool {
    match description::read_team(directory, key) {
        Ok(Described::Read(description)) => description.is_meant_to_go(),
        Ok(Described::Missing | Described::Newer(_) | Described::Damaged(_)) | Err(_) => false,
    }
}

/// Makes the directory of a workspace that is being created, before anything else is in it. Returns whether it
/// exists: a workspace whose disk was removed by hand has nothing to describe.
fn make_if_new(directory: &Path, phase: Phase) -> Result<bool, LedgerError> {
    if phase == Phase::Creating {
        make(directory)?;
    }
    Ok(directory.is_dir())
}

fn make(directory: &Path) -> Result<(), LedgerError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| LedgerError::io(directory, error))
}

/// Marks the files as behind when dropped, unless the change turned out to be in them.
struct BehindOnDrop {
    behind: Arc<AtomicBool>,
    armed: bool,
}

impl Drop for BehindOnDrop {
    fn drop(&mut self) {
        if self.armed {
            self.behind.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use agentiso_core::config::{Config, UserDirs};
    use agentiso_core::team::TeamState;
    use futures::FutureExt;

    use super::*;
    use crate::ledger::{Counters, SCHEMA_VERSION};

    fn document() -> LedgerDocument {
        LedgerDocument {
            schema_version: SCHEMA_VERSION,
            saved_at: jiff::Timestamp::UNIX_EPOCH,
            revision: 0,
            workspaces: BTreeMap::new(),
            sessions: Vec::new(),
            teams: agentiso_core::team::Teams::default(),
            counters: Counters::default(),
            mended: None,
        }
    }

    fn store(root: &Path) -> Store {
        let dirs = UserDirs { uid: 1000, home: root.into(), state_home: None, runtime_dir: None };
        let text = format!("[server]\nstate_file = \"{}/state.json\"\n", root.display());
        Store::new(Config::parse(&text, &dirs).unwrap().paths, Written::default())
    }

    #[tokio::test]
    async fn cancelled_waiting_save_marks_the_store_behind() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let writing = Arc::clone(&store.saved).lock_owned().await;
        let waiting = store.save(1, || panic!("it must not begin"));
        assert!(tokio::time::timeout(std::time::Duration::from_millis(10), waiting).await.is_err());
        assert!(store.is_behind());
        drop(writing);
        store.save(2, || (2, document())).await.unwrap();
        assert!(!store.is_behind());
    }

    #[tokio::test]
    async fn cancelled_save_stays_behind_after_another_write() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let first = || {
            let taken = (1, document());
            // This change comes after the state was taken, and is cancelled while that is being written.
            assert!(store.save(2, || panic!("it must not begin")).now_or_never().is_none());
            taken
        };
        store.save(1, first).await.unwrap();
        assert!(store.is_behind());
        store.save(2, || (2, document())).await.unwrap();
        assert!(!store.is_behind());
    }

    #[tokio::test]
    async fn failed_write_marks_the_store_behind() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir.path().join("absent"));
        store.save(1, || (1, document())).await.unwrap_err();
        assert!(store.is_behind());
    }

    #[tokio::test]
    async fn only_changed_descriptions_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let text = include_str!("../../tests/fixtures/ledger-v4-teams.json");
        let mut full: LedgerDocument = serde_json::from_str(text).unwrap();
        for id in full.workspaces.keys() {
            fs::create_dir_all(store.paths.workspace_data(id)).unwrap();
        }
        store.save(1, || (1, full.clone())).await.unwrap();
        let (first, second) = {
            let mut ids = full.workspaces.keys().copied();
            (ids.next().unwrap(), ids.next().unwrap())
        };
        let revision =
            |id: WorkspaceId| match description::read_workspace(&store.paths.workspace_data(&id), id) {
                Ok(Described::Read(description)) => description.revision,
                other => panic!("{other:?}"),
            };
        full.workspaces.entry(first).and_modify(|entry| entry.stop_reason = Some("x".to_owned()));
        store.save(2, || (2, full.clone())).await.unwrap();
        assert_eq!((revision(first), revision(second)), (2, 1));
        // Files removed by hand are written again, and a team that is gone loses its description.
        let (name, team) = full.teams.iter().next().unwrap();
        let team = team_directory(&store.paths, &TeamKey::of(name, team));
        fs::remove_file(workspace_file(&store.paths.workspace_data(&second))).unwrap();
        fs::remove_dir_all(&team).unwrap();
        store.save(3, || (3, full.clone())).await.unwrap();
        assert_eq!(revision(second), 3);
        assert!(team_file(&team).exists());
        full.teams = agentiso_core::team::Teams::default();
        store.save(4, || (4, full)).await.unwrap();
        assert_eq!(fs::read_dir(team.parent().unwrap()).unwrap().count(), 0);
        assert!(!store.is_behind());
    }

    #[tokio::test]
    async fn saving_fails_while_team_description_permits_removal() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let text = include_str!("../../tests/fixtures/ledger-v4-teams.json");
        let full: LedgerDocument = serde_json::from_str(text).unwrap();
        let (name, team) = full.teams.iter().map(|(name, team)| (name.clone(), team.clone())).next().unwrap();
        let with = |state| {
            let mut document = document();
            document.teams.restore(name.clone(), Team { state, ..team.clone() });
            document
        };
        store.save(1, || (1, with(TeamState::Creating))).await.unwrap();
        let directory = team_directory(&store.paths, &TeamKey::of(&name, &team));
        let in_the_way = super::super::whole_file::temporary(&team_file(&directory));
        fs::create_dir(&in_the_way).unwrap();
        store.save(2, || (2, with(TeamState::Ready))).await.unwrap_err();
        assert!(store.is_behind());
        fs::remove_dir(&in_the_way).unwrap();
        store.save(2, || (2, with(TeamState::Ready))).await.unwrap();
        // The description on disk lags behind, but would lose nothing.
        fs::create_dir(&in_the_way).unwrap();
        store.save(3, || (3, with(TeamState::Working))).await.unwrap();
        assert!(store.is_behind());
    }

    #[tokio::test]
    async fn saving_fails_while_workspace_description_permits_removal() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let text = include_str!("../../tests/fixtures/ledger-v4-teams.json");
        let mut full: LedgerDocument = serde_json::from_str(text).unwrap();
        let id = *full.workspaces.keys().next().unwrap();
        full.workspaces.retain(|other, _| *other == id);
        let set = |document: &mut LedgerDocument, phase| {
            document.workspaces.entry(id).and_modify(|entry| entry.phase = phase);
        };
        let directory = store.paths.workspace_data(&id);
        // A directory in the way keeps the new description from being written.
        let in_the_way = super::super::whole_file::temporary(&workspace_file(&directory));
        let standby = Description::new(id, 0, Holds::Standby);
        let mut generation = 0;
        for replaced_by in [Some(standby), None] {
            set(&mut full, Phase::Creating);
            generation += 1;
            store.save(generation, || (generation, full.clone())).await.unwrap();
            if let Some(description) = replaced_by {
                description::write_workspace(&directory, &description).unwrap();
            }
            fs::create_dir(&in_the_way).unwrap();
            set(&mut full, Phase::Stopped);
            generation += 1;
            store.save(generation, || (generation, full.clone())).await.unwrap_err();
            assert!(store.is_behind());
            fs::remove_dir(&in_the_way).unwrap();
            store.save(generation, || (generation, full.clone())).await.unwrap();
            // The stale file on disk is harmless.
            fs::create_dir(&in_the_way).unwrap();
            full.workspaces.entry(id).and_modify(|entry| entry.stop_reason = Some(generation.to_string()));
            generation += 1;
            store.save(generation, || (generation, full.clone())).await.unwrap();
            assert!(store.is_behind());
            fs::remove_dir(&in_the_way).unwrap();
        }
    }
}
