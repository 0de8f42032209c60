//! What the dashboard knows, and how news and keys change it. No clock, no terminal, no daemon.

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
    News(Box<News>),
    /// The daemon cannot be asked; what was known last is still shown.
    Gone(String),
}

/// One look at everything.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) overview: Overview,
    pub(super) usage: BTreeMap<WorkspaceId, Usage>,
    /// Of the workspace that was selected when it was asked for.
    pub(super) detail: Option<Detail>,
    pub(super) at: jiff::Timestamp,
}

#[derive(Debug)]
pub(super) struct Detail {
    /// With the sizes of its disk.
    pub(super) workspace: Workspace,
    /// What its network policy refused last, the latest at the end.
    pub(super) refusals: Vec<String>,
    /// The end of what it wrote to its console.
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
    Go,
    Leave,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// `None` until the first look.
    pub(super) news: Option<News>,
    pub(super) problem: Option<String>,
    pub(super) selected: Option<WorkspaceId>,
    pub(super) page: Page,
    /// Lines of the log that are below the screen.
    pub(super) scrolled: usize,
}

impl State {
    pub(super) fn apply(&mut self, change: Change) -> Next {
        match change {
            Change::Key(Key::Leave) => return Next::Leave,
            Change::Key(key) => self.press(key),
            // It is drawn again after every change.
            Change::Resized => {}
            Change::News(news) => self.learn(*news),
            Change::Gone(problem) => self.problem = Some(problem),
        }
        Next::Go
    }

    pub(super) fn workspaces(&self) -> &[Workspace] {
        self.news.as_ref().map_or(&[], |news| &news.overview.workspaces)
    }

    /// Where the selected one is in the list.
    pub(super) fn position(&self) -> Option<usize> {
        let selected = self.selected?;
        self.workspaces().iter().position(|workspace| workspace.id == selected)
    }

    /// What is known of the selected one besides its line.
    pub(super) fn detail(&self) -> Option<&Detail> {
        let detail = self.news.as_ref()?.detail.as_ref()?;
        (Some(detail.workspace.id) == self.selected).then_some(detail)
    }

    fn learn(&mut self, news: News) {
        self.problem = None;
        // When the selected one is gone, its neighbour is meant.
        let place = self.position().unwrap_or(0);
        self.news = Some(news);
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

    /// A workspace as the daemon tells of it.
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

    pub(in super::super) fn news(workspaces: Vec<Workspace>) -> News {
        let overview = Overview { workspaces, ..Overview::default() };
        News { overview, at: "2026-11-16T13:00:00Z".parse().unwrap(), ..News::default() }
    }

    fn knows(names: &[(u8, &str)]) -> State {
        let mut state = State::default();
        let all = names.iter().map(|(number, name)| workspace(*number, name, "running")).collect();
        state.apply(Change::News(Box::new(news(all))));
        state
    }

    fn selected(state: &State) -> Option<&str> {
        Some(state.workspaces().get(state.position()?)?.name.as_str())
    }

    #[test]
    fn the_selection_moves_within_the_list_and_stays_with_its_workspace() {
        let mut state = knows(&[(1, "a"), (2, "b"), (3, "c")]);
        assert_eq!(selected(&state), Some("a"));
        for (key, then) in [(Key::Up, "a"), (Key::Down, "b"), (Key::Down, "c"), (Key::Down, "c")] {
            assert_eq!(state.apply(Change::Key(key)), Next::Go);
            assert_eq!(selected(&state), Some(then));
        }
        let reordered = vec![workspace(3, "c", "running"), workspace(1, "a", "running")];
        state.apply(Change::News(Box::new(news(reordered))));
        assert_eq!(selected(&state), Some("c"));
    }

    #[test]
    fn when_the_selected_workspace_is_gone_its_neighbour_is_selected() {
        let mut state = knows(&[(1, "a"), (2, "b")]);
        state.apply(Change::Key(Key::Down));
        state.apply(Change::Key(Key::Enter));
        assert_eq!(state.page, Page::Details);
        state.apply(Change::News(Box::new(news(vec![workspace(1, "a", "running")]))));
        assert_eq!((selected(&state), state.page), (Some("a"), Page::List));
        state.apply(Change::News(Box::new(news(Vec::new()))));
        assert_eq!(state.selected, None);
        state.apply(Change::Key(Key::Enter));
        state.apply(Change::Key(Key::Down));
        assert_eq!((state.page, state.selected), (Page::List, None));
    }

    #[test]
    fn a_daemon_that_goes_away_is_told_until_it_is_back() {
        let mut state = knows(&[(1, "a")]);
        state.apply(Change::Gone("no daemon is running".to_owned()));
        assert_eq!((state.problem.as_deref(), selected(&state)), (Some("no daemon is running"), Some("a")));
        state.apply(Change::News(Box::new(news(Vec::new()))));
        assert_eq!(state.problem, None);
        assert_eq!(state.apply(Change::Key(Key::Leave)), Next::Leave);
    }
}
