//! Draws the screen from the state.

use agentiso_core::lifecycle::PublicState;
use agentiso_daemon::control::overview::Overview;
use agentiso_daemon::control::wire::Workspace;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use super::state::{Detail, Page, State, Update};
use super::usage::Usage;
use crate::output;

/// The most lines for the teams, with their heading.
const MAX_TEAM_LINES: u16 = 6;

const WIDTHS: [Constraint; 8] = [
    Constraint::Min(16),
    Constraint::Length(10),
    Constraint::Length(15),
    Constraint::Length(6),
    Constraint::Length(21),
    Constraint::Length(10),
    Constraint::Length(5),
    Constraint::Length(15),
];

const HEADING: [&str; 8] = ["NAME", "STATE", "IP", "CPU", "MEMORY", "DISK", "SNAPS", "CREATED"];

pub(super) fn draw(state: &State, frame: &mut Frame<'_>) {
    let rows = Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
    let [head, body, foot] = rows.areas(frame.area());
    frame.render_widget(header(state), head);
    match (&state.latest, state.page, selected(state)) {
        (None, _, _) => {}
        (Some(update), Page::Details, Some(workspace)) => details(state, update, workspace, frame, body),
        (Some(update), Page::List | Page::Details, _) => list(state, update, frame, body),
    }
    frame.render_widget(Line::from(keys(state.page)).dim(), foot);
}

fn selected(state: &State) -> Option<&Workspace> {
    state.workspaces().get(state.position()?)
}

fn keys(page: Page) -> &'static str {
    match page {
        Page::List => "up/down select   enter details and logs   q quit",
        Page::Details => "esc back   up/down other workspaces   page up/down scroll logs   q quit",
    }
}

fn header(state: &State) -> Line<'static> {
    let facts = match &state.latest {
        None => "connecting to the daemon".to_owned(),
        Some(update) => {
            let Overview { workspaces, teams, pool_ready, uptime_seconds, .. } = &update.overview;
            let running = workspaces.iter().filter(|w| w.state == PublicState::Running).count();
            format!(
                "{running} of {} workspaces running   pool {pool_ready} ready   {} teams   daemon up {}",
                workspaces.len(),
                teams.len(),
                duration(*uptime_seconds)
            )
        }
    };
    let mut line = Line::from(vec!["agentiso  ".bold(), facts.into()]);
    if let Some(problem) = &state.problem {
        line.push_span(format!("   {}", output::one_line(problem)).red().bold());
    }
    line
}

fn list(state: &State, update: &Update, frame: &mut Frame<'_>, area: Rect) {
    let teams = u16::try_from(update.overview.teams.len()).unwrap_or(u16::MAX);
    let team_lines = if teams == 0 { 0 } else { teams.saturating_add(1).min(MAX_TEAM_LINES) };
    let parts = [Constraint::Fill(3), Constraint::Length(team_lines), Constraint::Fill(1)];
    let [table, team_area, refused] = Layout::vertical(parts).areas(area);
    let rows = update.overview.workspaces.iter().map(|workspace| row(update, state.detail(), workspace));
    let widget = Table::new(rows, WIDTHS)
        .header(Row::new(HEADING).style(Modifier::BOLD))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut place = TableState::default().with_selected(state.position());
    if update.overview.workspaces.is_empty() {
        frame.render_widget(Paragraph::new("no workspaces"), table);
    } else {
        frame.render_stateful_widget(widget, table, &mut place);
    }
    frame.render_widget(team_text(&update.overview, team_lines), team_area);
    frame.render_widget(refusals(state, refused), refused);
}

fn row(update: &Update, detail: Option<&Detail>, workspace: &Workspace) -> Row<'static> {
    let usage = update.usage.get(&workspace.id);
    let measured = detail.map(|detail| &detail.workspace).filter(|measured| measured.id == workspace.id);
    let disk = measured.unwrap_or(workspace).disk_used_bytes.map(output::size);
    let cpu = usage.and_then(|usage| usage.cpu_percent).map(|percent| format!("{percent:.0} %"));
    Row::new([
        Cell::from(workspace.name.clone()),
        Cell::from(state_word(workspace.state)).style(colour(workspace.state)),
        Cell::from(workspace.ip.to_string()),
        Cell::from(cpu.unwrap_or_default()),
        Cell::from(memory(usage, workspace)),
        Cell::from(disk.unwrap_or_else(|| format!("{} GB", workspace.resources.disk_gb))),
        Cell::from(workspace.snapshots.len().to_string()),
        Cell::from(output::age(workspace.created_at, update.at)),
    ])
}

fn memory(usage: Option<&Usage>, workspace: &Workspace) -> String {
    let limit = format!("{} MB", workspace.resources.memory_mb);
    usage.map_or(limit.clone(), |usage| format!("{} of {limit}", output::size(usage.memory_bytes)))
}

fn state_word(state: PublicState) -> &'static str {
    match state {
        PublicState::Running => "running",
        PublicState::Stopped => "stopped",
        PublicState::Suspended => "suspended",
    }
}

fn colour(state: PublicState) -> Color {
    match state {
        PublicState::Running => Color::Green,
        PublicState::Stopped => Color::Reset,
        PublicState::Suspended => Color::Yellow,
    }
}

fn team_text(overview: &Overview, lines: u16) -> Paragraph<'static> {
    let shown = usize::from(lines.saturating_sub(1));
    let heading = Line::from(format!("TEAMS ({})", overview.teams.len())).bold();
    let teams = overview
        .teams
        .iter()
        .take(shown)
        .map(|team| Line::from(format!("{}  {}  {}", team.name, team.state, team.members.join(", "))));
    Paragraph::new(std::iter::once(heading).chain(teams).collect::<Vec<_>>())
}

fn refusals(state: &State, area: Rect) -> Paragraph<'static> {
    let name = selected(state).map(|workspace| workspace.name.as_str()).unwrap_or_default();
    let title = format!(" refused connections of {name} ");
    let lines = state.detail().map_or(&[][..], |detail| &detail.refusals);
    let room = usize::from(area.height.saturating_sub(1));
    let text = if lines.is_empty() { Text::from("none").dim() } else { end_of(lines, room, 0) };
    Paragraph::new(text).block(Block::new().borders(Borders::TOP).title(title))
}

fn details(state: &State, update: &Update, workspace: &Workspace, frame: &mut Frame<'_>, area: Rect) {
    let detail = state.detail();
    let facts = facts(detail.map_or(workspace, |detail| &detail.workspace), update);
    let height = u16::try_from(facts.len()).unwrap_or(u16::MAX);
    let parts = [Constraint::Length(height), Constraint::Fill(1), Constraint::Fill(3)];
    let [top, refused, console] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(facts), top);
    frame.render_widget(refusals(state, refused), refused);
    let lines = detail.map_or(&[][..], |detail| &detail.console);
    let room = usize::from(console.height.saturating_sub(1));
    let log = Paragraph::new(end_of(lines, room, state.scrolled))
        .block(Block::new().borders(Borders::TOP).title(" console "));
    frame.render_widget(log, console);
}

fn facts(workspace: &Workspace, update: &Update) -> Vec<Line<'static>> {
    let fact = |name: &str, value: String| {
        Line::from(vec![format!("{name:<10}").bold(), output::one_line(&value).into()])
    };
    let resources = workspace.resources;
    let disk = match (workspace.disk_used_bytes, workspace.disk_volsize_bytes) {
        (Some(used), Some(size)) => format!("{} of {}", output::size(used), output::size(size)),
        (_, _) => format!("{} GB", resources.disk_gb),
    };
    let snapshots: Vec<&str> = workspace.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
    let policy = &workspace.network.policy;
    let forwards = workspace.network.port_forwards.iter();
    let forwards: Vec<_> = forwards.map(|f| format!("{} to {}", f.host_port, f.guest_port)).collect();
    let mut lines = vec![
        fact("name", format!("{}  {}", workspace.name, workspace.id)),
        fact("state", format!("{}  {}", state_word(workspace.state), workspace.base_image)),
        fact("memory", memory(update.usage.get(&workspace.id), workspace)),
        fact("disk", disk),
        fact("snapshots", if snapshots.is_empty() { "none".to_owned() } else { snapshots.join(", ") }),
        fact(
            "network",
            format!(
                "{}  internet {}  others {}  forwards {}",
                workspace.ip,
                if policy.allow_internet { "yes" } else { "no" },
                if policy.allow_inter_vm { "yes" } else { "no" },
                if forwards.is_empty() { "none".to_owned() } else { forwards.join(", ") }
            ),
        ),
    ];
    lines.extend(workspace.stop_reason.clone().map(|reason| fact("reason", reason)));
    lines
}

/// The last lines that fit into `room`, after leaving out `below` lines at the end.
fn end_of(lines: &[String], room: usize, below: usize) -> Text<'static> {
    let end = lines.len().saturating_sub(below);
    let begin = end.saturating_sub(room);
    lines[begin..end].iter().cloned().map(Line::from).collect::<Vec<_>>().into()
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::{update, workspace};
    use super::super::state::{Change, Key};
    use super::*;
    use agentiso_daemon::control::overview::TeamLine;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(state, frame)).unwrap();
        terminal.backend().to_string()
    }

    fn full() -> State {
        let mut all = update(vec![workspace(1, "web", "running"), workspace(2, "db", "stopped")]);
        let first = all.overview.workspaces[0].id;
        all.overview.pool_ready = 2;
        all.overview.uptime_seconds = 600;
        all.overview.teams = vec![TeamLine {
            name: "alpha".to_owned(),
            state: "Working".to_owned(),
            members: vec!["lead".to_owned(), "tester".to_owned()],
        }];
        all.usage.insert(first, Usage { cpu_percent: Some(42.4), memory_bytes: 64 << 20 });
        let mut measured = workspace(1, "web", "running");
        (measured.disk_used_bytes, measured.disk_volsize_bytes) = (Some(3 << 30), Some(10 << 30));
        all.detail = Some(Detail {
            workspace: measured,
            refusals: vec!["refused tcp evil.example:443".to_owned()],
            console: (1..=60).map(|number| format!("console {number}.")).collect(),
        });
        let mut state = State::default();
        state.apply(Change::Update(Box::new(all)));
        state
    }

    #[test]
    fn dashboard_list_shows_workspaces_teams_and_refusals() {
        let shown = screen(&full(), 110, 24);
        for words in [
            "1 of 2 workspaces running   pool 2 ready   1 teams   daemon up 10 min",
            "web",
            "42 %",
            "64.0 MiB of 512 MB",
            "3.0 GiB",
            "10.42.0.2",
            "stopped",
            "60 minutes ago",
            "alpha  Working  lead, tester",
            "refused connections of web",
            "refused tcp evil.example:443",
            "q quit",
        ] {
            assert!(shown.contains(words), "{words}\n{shown}");
        }
    }

    #[test]
    fn details_page_scrolls_the_console_log() {
        let mut state = full();
        state.apply(Change::Key(Key::Enter));
        let shown = screen(&state, 100, 24);
        for words in ["3.0 GiB of 10.0 GiB", "snapshots none", "internet no", "console 60.", "esc back"] {
            assert!(shown.contains(words), "{words}\n{shown}");
        }
        state.apply(Change::Key(Key::PageUp));
        let shown = screen(&state, 100, 24);
        assert!(shown.contains("console 50.") && !shown.contains("console 60."), "{shown}");
        for _ in 0..20 {
            state.apply(Change::Key(Key::PageUp));
        }
        assert!(screen(&state, 100, 24).contains("console 1."));
        state.apply(Change::Key(Key::Back));
        assert!(screen(&state, 100, 24).contains("db"));
    }

    #[test]
    fn missing_daemon_is_shown_beside_last_update() {
        let mut state = State::default();
        assert!(screen(&state, 80, 10).contains("connecting to the daemon"));
        state.apply(Change::Gone("no daemon is running".to_owned()));
        assert!(screen(&state, 80, 10).contains("no daemon is running"));
        let mut state = full();
        state.apply(Change::Gone("no daemon is running".to_owned()));
        let shown = screen(&state, 130, 20);
        assert!(shown.contains("no daemon is running") && shown.contains("web"), "{shown}");
    }

    #[test]
    fn dashboard_draws_to_any_terminal_size() {
        let mut details = full();
        details.apply(Change::Key(Key::Enter));
        for (width, height) in [(1, 1), (3, 2), (20, 4), (80, 3), (10, 60), (300, 100)] {
            for state in [&State::default(), &full(), &details] {
                screen(state, width, height);
            }
        }
    }
}
