//! Progress of slow work on standard error: a line that moves on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a moving line is redrawn, so that one sees that the program lives.
const TICK: Duration = Duration::from_millis(120);

/// Plain lines for the same step come at most this often: a log wants signs of life, not a flood.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// One piece of work, from its start to [`Display::done`]. Shared with callbacks, hence the lock inside.
#[derive(Debug)]
pub(crate) struct Display {
    title: String,
    start: Instant,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Moving(ProgressBar),
    Plain(Mutex<Plain>),
    Silent,
}

#[derive(Debug)]
struct Plain {
    shown: String,
    at: Option<Instant>,
}

impl Display {
    pub(crate) fn start(title: &str) -> Self {
        let kind = if io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
                bar.set_style(style);
            }
            bar.set_message(title.to_owned());
            bar.enable_steady_tick(TICK);
            Kind::Moving(bar)
        } else {
            Kind::Plain(Mutex::new(Plain { shown: String::new(), at: None }))
        };
        Self { title: title.to_owned(), start: Instant::now(), kind }
    }

    /// For work that is quick when it goes well, and for scripts that asked for JSON.
    pub(crate) fn silent() -> Self {
        Self { title: String::new(), start: Instant::now(), kind: Kind::Silent }
    }

    /// Shows the step the work is in, with the part that is done (0 to 1) where it is known.
    pub(crate) fn update(&self, step: &str, fraction: Option<f32>) {
        let part = fraction.map(|f| format!(" {:.0} %", f.clamp(0.0, 1.0) * 100.0)).unwrap_or_default();
        match &self.kind {
            Kind::Moving(bar) => bar.set_message(format!("{}: {step}{part}", self.title)),
            Kind::Plain(state) => {
                let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let due = state.at.is_none_or(|at| at.elapsed() >= PLAIN_INTERVAL);
                if state.shown != step || due {
                    eprintln!("{}: {step}{part}", self.title);
                    step.clone_into(&mut state.shown);
                    state.at = Some(Instant::now());
                }
            }
            Kind::Silent => {}
        }
    }

    /// For builds of images and kernels, which report phases.
    pub(crate) fn reporter(&self) -> impl Fn(agentiso_image::Progress) + Send + Sync + '_ {
        |progress| {
            let fraction = progress.percent.map(|percent| f32::from(percent) / 100.0);
            self.update(progress.phase.label(), fraction);
        }
    }

    /// Ends the display with a line that stays.
    pub(crate) fn done(self, result: &str) {
        self.finish(result);
    }

    /// The same for a display that is shared with a callback.
    pub(crate) fn finish(&self, result: &str) {
        let time = self.start.elapsed().as_secs_f64();
        if !matches!(self.kind, Kind::Silent) {
            self.clear();
            eprintln!("{}: {result} ({time:.1} s)", self.title);
        }
    }

    /// Ends the display without a trace, before an error or other output takes its place.
    pub(crate) fn clear(&self) {
        if let Kind::Moving(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.clear();
    }
}
