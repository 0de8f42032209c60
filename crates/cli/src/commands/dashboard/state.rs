//! The state of the dashboard, and its changes by updates and keys. It uses no clock, no terminal and no daemon.

use std::collections::BTreeMap;

use agentiso_core::ids::WorkspaceId;
use agentiso_daemon::control::overview::Overview;
use agentiso_daemon::control::wire::Workspace;

use super::usage::Usage;

/// Lines that page up and page down move by.
const PAGE: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    Enter,
    Back,
    PageUp,
    PageDown,
    Leave,
}

#[derive(Debug)]
pub(super) enum Change {
    Key(Key),
    Resized,
    Update(Box<Update>),
    /// The daemon does not answer. The last update is still shown.
    Gone(String),
}

/// Everything that was read from the daemon at one time.
#[derive(Debug, Default)]
pub(super) struct Update {
    pub(super) overview: Overview,
    pub(super) usage: BTreeMap<WorkspaceId, Usage>,
    /// The details of the workspace that was selected at that time.
    pub(super) detail: Option<Detail>,
    pub(super) at: jiff::Timestamp,
}

#[derive(Debug)]
pub(super) struct Detail {
    /// The workspace with the sizes of its disk.
    pub(super) workspace: Workspace,
    /// The last refused flows, the latest at the end.
    pub(super) refusals: Vec<String>,
    /// The last lines of its console.
    pub(super) console: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    #[default]
    List,
    Details,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    Leave,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// `None` until the first update.
    pub(super) latest: Option<Update>,
    pub(super) problem: Option<String>,
    pub(super) selected: Option<WorkspaceId>,
    pub(super) page: Page,
    /// The number of log lines below the screen.
    pub(super) scrolled: usize,
}

impl State {
    pub(super) fn apply(&mut self, change: Change) -> Next {
        match change {
            Change::Key(Key::Leave) => return Next::Leave,
            Change::Key(key) => self.press(key),
            // The screen is drawn again after every change.
            Change::Resized => {}
            Change::Update(update) => self.apply_update(*update),
            Change::Gone(problem) => self.problem = Some(problem),
        }
        Next::Continue
    }

    pub(super) fn workspaces(&self) -> &[Workspace] {
        self.latest.as_ref().map_or(&[], |update| &update.overview.workspaces)
    }

    /// The position of the selected workspace in the list.
    pub(super) fn position(&self) -> Option<usize> {
        let selected = self.selected?;
        self.workspaces().iter().position(|workspace| workspace.id == selected)
    }

    /// The details of the selected workspace, if they are known.
    pub(super) fn detail(&self) -> Option<&Detail> {
        let detail = self.latest.as_ref()?.detail.as_ref()?;
        (Some(detail.workspace.id) == self.selected).then_some(detail)
    }

    fn apply_update(&mut self, update: Update) {
        self.problem = None;
        // If the selected workspace is gone, its neighbour is selected.
        let place = self.position().unwrap_or(0);
        self.latest = Some(update);
        if self.position().is_none() {
            let last = self.workspaces().len().saturating_sub(1);
            self.select(place.min(last));
            self.page = Page::List;
        }
    }

    fn select(&mut self, place: usize) {
        let selected = self.workspaces().get(place).map(|workspace| workspace.id);
        if selected != self.selected {
            self.scrolled = 0;
        }
        self.selected = selected;
    }

    fn press(&mut self, key: Key) {
        let place = self.position().unwrap_or(0);
        let last = self.workspaces().len().saturating_sub(1);
        match key {
            Key::Up => self.select(place.saturating_sub(1)),
            Key::Down => self.select((place + 1).min(last)),
            Key::Enter if self.selected.is_some() => self.page = Page::Details,
            Key::Back => self.page = Page::List,
            Key::PageUp => {
                let lines = self.detail().map_or(0, |detail| detail.console.len());
                self.scrolled = (self.scrolled + PAGE).min(lines.saturating_sub(1));
            }
            Key::PageDown => self.scrolled = self.scrolled.saturating_sub(PAGE),
            Key::Enter | Key::Leave => {}
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A workspace as the daemon sends it.
    pub(in super::super) fn workspace(number: u8, name: &str, state: &str) -> Workspace {
        let phase = if state == "suspended" { "suspended" } else { state };
        serde_json::from_value(serde_json::json!({
            "id": format!("00000000-0000-4000-8000-0000000000{number:02}"),
            "name": name, "state": state, "phase": phase, "base_image": "debian-dev",
            "ip": format!("10.42.0.{number}"), "resources": {"vcpus": 2, "memory_mb": 512, "disk_gb": 10},
            "owner": null, "network": agentiso_daemon::NetworkInfo::default(),
            "created_at": "2026-11-16T12:00:00Z", "disk_used_bytes": null, "disk_volsize_bytes": null,
            "stop_reason": null, "pid": null, "rung": null,
        }))
        .unwrap()
    }

    pub(in super::super) fn update(workspaces: Vec<Workspace>) -> Update {
        let overview = Overview { workspaces, ..Overview::default() };
        Update { overview, at: "2026-11-16T13:00:00Z".parse().unwrap(), ..Update::default() }
    }

    fn knows(names: &[(u8, &str)]) -> State {
        let mut state = State::default();
        let all = names.iter().map(|(number, name)| workspace(*number, name, "running")).collect();
        state.apply(Change::Update(Box::new(update(all))));
        state
    }

    fn selected(state: &State) -> Option<&str> {
        Some(state.workspaces().get(state.position()?)?.name.as_str())
    }

    #[test]
    fn selection_follows_its_workspace() {
        let mut state = knows(&[(1, "a"), (2, "b"), (3, "c")]);
        assert_eq!(selected(&state), Some("a"));
        for (key, then) in [(Key::Up, "a"), (Key::Down, "b"), (Key::Down, "c"), (Key::Down, "c")] {
            assert_eq!(state.apply(Change::Key(key)), Next::Continue);
            assert_eq!(selected(&state), Some(then));
        }
        let reordered = vec![workspace(3, "c", "running"), workspace(1, "a", "running")];
        state.apply(Change::Update(Box::new(update(reordered))));
        assert_eq!(selected(&state), Some("c"));
    }

    #[test]
    fn neighbour_is_selected_when_workspace_is_gone() {
        let mut state = knows(&[(1, "a"), (2, "b")]);
        state.apply(Change::Key(Key::Down));
        state.apply(Change::Key(Key::Enter));
        assert_eq!(state.page, Page::Details);
        state.apply(Change::Update(Box::new(update(vec![workspace(1, "a", "running")]))));
        assert_eq!((selected(&state), state.page), (Some("a"), Page::List));
        state.apply(Change::Update(Box::new(update(Vec::new()))));
        assert_eq!(state.selected, None);
        state.apply(Change::Key(Key::Enter));
        state.apply(Change::Key(Key::Down));
        assert_eq!((state.page, state.selected), (Page::List, None));
    }

    #[test]
    fn daemon_problem_is_kept_until_next_update() {
        let mut state = knows(&[(1, "a")]);
        state.apply(Change::Gone("no daemon is running".to_owned()));
        assert_eq!((state.problem.as_deref(), selected(&state)), (Some("no daemon is running"), Some("a")));
        state.apply(Change::Update(Box::new(update(Vec::new()))));
        assert_eq!(state.problem, None);
        assert_eq!(state.apply(Change::Key(Key::Leave)), Next::Leave);
    }
}
