//! `agentiso dashboard`: what the daemon has, on a whole terminal, followed. It only reads.
//!
//! ```text
//!  daemon ──▶ watch ──news──▶ State ──▶ draw ──▶ terminal
//!  keys ────────────────────▶   │
//!                     selected workspace ──▶ watch
//! ```
//!
//! What is shown is a pure function of [`state::State`]; what changes it is told to it.

mod draw;
mod keys;
mod state;
mod usage;
mod watch;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use ratatui::DefaultTerminal;
use tokio::sync::mpsc;

use crate::context::Context;
use crate::failure::Failure;
use crate::runtime;
use state::{Next, State};

/// News and keys that wait for the screen; it draws faster than they come.
const QUEUE: usize = 16;

/// Watch workspaces, teams and the pool on the terminal
///
/// Shows every workspace with what its machine takes, the teams, and what the network refused the selected one. Enter shows
/// one workspace with its logs. It changes nothing, does not start a daemon, and goes on when the daemon does.
///
/// Keys: up/down or k/j select, enter shows details, esc goes back, page up/down move in the logs, q leaves.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso dashboard
  agentiso dashboard --refresh 5")]
pub(crate) struct Arguments {
    /// Seconds between two looks
    #[arg(long, value_name = "SECS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    refresh: u64,
}

impl Arguments {
    fn between_looks(&self) -> Duration {
        Duration::from_secs(self.refresh)
    }
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::usage("the dashboard needs a terminal, and this is none")
            .hint("`agentiso ps --json` and `agentiso status` tell the same to programs"));
    }
    let screen = Screen::open()?;
    // Dropped with the screen restored, whatever ends it.
    let shown = runtime::block_on(show(context, screen, arguments.between_looks()));
    shown??;
    Ok(ExitCode::SUCCESS)
}

/// The terminal while it is ours.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init()
            .map_err(|error| Failure::new(format!("the terminal cannot be used: {error}")))?;
        Ok(Self(terminal))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

async fn show(context: &Context, mut screen: Screen, refresh: Duration) -> Result<(), Failure> {
    let (news, mut changes) = mpsc::channel(QUEUE);
    let (selected, wanted) = tokio::sync::watch::channel(None);
    keys::listen(news.clone());
    let mut state = State::default();
    let watching = watch::run(context, refresh, wanted, news);
    tokio::pin!(watching);
    loop {
        let drawn = screen.0.draw(|frame| draw::draw(&state, frame));
        drawn.map_err(|error| Failure::new(format!("the terminal cannot be written to: {error}")))?;
        let change = tokio::select! {
            change = changes.recv() => change,
            () = &mut watching => None,
        };
        match change.map(|change| state.apply(change)) {
            Some(Next::Go) => {}
            Some(Next::Leave) | None => return Ok(()),
        }
        selected.send_if_modified(|known| {
            let changed = *known != state.selected;
            *known = state.selected;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ConfigArgument;
    use clap::Parser;
    use tokio::time::Instant;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[tokio::test(start_paused = true)]
    async fn it_looks_every_two_seconds_unless_it_is_told_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentiso.toml");
        let state = dir.path().join("state.json");
        std::fs::write(&path, format!("[server]\nstate_file = \"{}\"\n", state.display())).unwrap();
        let context = Context::load(&ConfigArgument { config: Some(path) }).unwrap();
        for (line, expected) in [(&["dashboard"][..], 2), (&["dashboard", "--refresh", "7"], 7)] {
            let Line { arguments } = Line::parse_from(line);
            let (news, mut changes) = mpsc::channel(QUEUE);
            let (_selected, wanted) = tokio::sync::watch::channel(None);
            let looking = watch::run(&context, arguments.between_looks(), wanted, news);
            let counting = async {
                changes.recv().await.expect("a first look");
                for _ in 0..3 {
                    let begun = Instant::now();
                    changes.recv().await.expect("another look");
                    assert_eq!(begun.elapsed().as_secs(), expected, "{line:?}");
                }
            };
            tokio::select! {
                () = looking => panic!("it looks until nobody listens"),
                () = counting => {}
            }
        }
    }
}
