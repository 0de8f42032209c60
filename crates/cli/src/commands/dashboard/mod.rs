//! `agentiso dashboard`: shows workspaces, teams and logs on the whole terminal and refreshes them. It only reads.
//!
//! ```text
//!  daemon ──▶ watch ──update──▶ State ──▶ draw ──▶ terminal
//!  keys ──────────────────────▶   │
//!                       selected workspace ──▶ watch
//! ```
//!
//! The screen is a pure function of [`state::State`], and every change of the state is passed to it as a value.

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

/// The most queued changes. The screen is drawn faster than they come.
const QUEUE: usize = 16;

/// Watch workspaces, teams and the warm pool on the terminal
///
/// Shows all workspaces with the resources they use, the teams, and the refused connections of the selected workspace. Enter
/// shows one workspace with its logs. The dashboard changes nothing, does not start the daemon, and reconnects if the daemon
/// is restarted.
///
/// Keys: up/down or k/j select, enter shows details, esc goes back, page up/down scroll the logs, q quits.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso dashboard
  agentiso dashboard --refresh 5")]
pub(crate) struct Arguments {
    /// Refresh interval in seconds
    #[arg(long, value_name = "SECS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    refresh: u64,
}

impl Arguments {
    fn refresh_interval(&self) -> Duration {
        Duration::from_secs(self.refresh)
    }
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::usage("the dashboard needs a terminal")
            .hint("use `agentiso ps --json` or `agentiso status` in scripts"));
    }
    let screen = Screen::open()?;
    // `show` owns the screen, so it is restored however `show` ends.
    let shown = runtime::block_on(show(context, screen, arguments.refresh_interval()));
    shown??;
    Ok(ExitCode::SUCCESS)
}

/// The terminal in raw mode. It is restored on drop.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, Failure> {
        let terminal =
            ratatui::try_init().map_err(|error| Failure::new(format!("cannot use the terminal: {error}")))?;
        Ok(Self(terminal))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

async fn show(context: &Context, mut screen: Screen, refresh: Duration) -> Result<(), Failure> {
    let (sender, mut changes) = mpsc::channel(QUEUE);
    let (selected, wanted) = tokio::sync::watch::channel(None);
    keys::listen(sender.clone());
    let mut state = State::default();
    let watching = watch::run(context, refresh, wanted, sender);
    tokio::pin!(watching);
    loop {
        let drawn = screen.0.draw(|frame| draw::draw(&state, frame));
        drawn.map_err(|error| Failure::new(format!("cannot write to the terminal: {error}")))?;
        let change = tokio::select! {
            change = changes.recv() => change,
            () = &mut watching => None,
        };
        match change.map(|change| state.apply(change)) {
            Some(Next::Continue) => {}
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
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[tokio::test(start_paused = true)]
    async fn dashboard_refreshes_every_two_seconds_by_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentiso.toml");
        let state = dir.path().join("state.json");
        std::fs::write(&path, format!("[server]\nstate_file = \"{}\"\n", state.display())).unwrap();
        let context = Context::load(&ConfigArgument { config: Some(path) }).unwrap();
        for (line, expected) in [(&["dashboard"][..], 2), (&["dashboard", "--refresh", "7"], 7)] {
            let CommandLine { arguments } = CommandLine::parse_from(line);
            let (sender, mut changes) = mpsc::channel(QUEUE);
            let (_selected, wanted) = tokio::sync::watch::channel(None);
            let looking = watch::run(&context, arguments.refresh_interval(), wanted, sender);
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
