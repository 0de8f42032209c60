//! Shows the progress of slow work on standard error: a moving line on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The interval at which a moving line is redrawn, to show that the program is alive.
const TICK: Duration = Duration::from_millis(120);

/// Work that ends within this time prints no lines to a log.
const PATIENCE: Duration = Duration::from_secs(2);

/// The interval at which the same step is printed again to a log.
const REMINDER: Duration = Duration::from_secs(20);

/// The display of one piece of work, from its start to [`Display::done`]. Callbacks share it and must not block on it.
#[derive(Debug)]
pub(crate) struct Display {
    title: String,
    start: Instant,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Moving(ProgressBar),
    Plain(Plain),
    Silent,
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
            Kind::Plain(Plain::start(title.to_owned(), |line| eprintln!("{line}")))
        };
        Self { title: title.to_owned(), start: Instant::now(), kind }
    }

    /// A display that shows nothing, for `--json`.
    pub(crate) fn silent() -> Self {
        Self { title: String::new(), start: Instant::now(), kind: Kind::Silent }
    }

    /// Shows the current step, with the completed fraction (0 to 1) if it is known.
    pub(crate) fn update(&self, step: &str, fraction: Option<f32>) {
        let part = fraction.map(|f| format!(" {:.0} %", f.clamp(0.0, 1.0) * 100.0)).unwrap_or_default();
        let text = format!("{step}{part}");
        match &self.kind {
            Kind::Moving(bar) => bar.set_message(format!("{}: {text}", self.title)),
            Kind::Plain(plain) => plain.update(text),
            Kind::Silent => {}
        }
    }

    /// A callback for builds of images and kernels, which report phases.
    pub(crate) fn reporter(&self) -> impl Fn(agentiso_image::Progress) + Send + Sync + '_ {
        |progress| {
            let fraction = progress.percent.map(|percent| f32::from(percent) / 100.0);
            // A line of a tool without a percentage does not replace the last known percentage.
            if fraction.is_some() || progress.detail.is_none() {
                self.update(progress.phase.label(), fraction);
            }
        }
    }

    /// Ends the display with a permanent line. Returns the elapsed time.
    pub(crate) fn done(mut self, result: &str) -> Duration {
        let elapsed = self.start.elapsed();
        let time = elapsed.as_secs_f64();
        let is_shown = !matches!(self.kind, Kind::Silent);
        self.clear();
        if is_shown {
            eprintln!("{}: {result} ({time:.1} s)", self.title);
        }
        elapsed
    }

    /// Ends the display and clears it, so that an error or other output can follow.
    pub(crate) fn clear(&mut self) {
        match std::mem::replace(&mut self.kind, Kind::Silent) {
            Kind::Moving(bar) => bar.finish_and_clear(),
            Kind::Plain(plain) => plain.end(),
            Kind::Silent => {}
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Prints lines for a log from a separate thread, which also prints reminders when nothing changes for a while.
#[derive(Debug)]
struct Plain {
    steps: mpsc::Sender<String>,
    writer: JoinHandle<()>,
}

impl Plain {
    fn start(title: String, print: impl Fn(&str) + Send + 'static) -> Self {
        let (steps, updates) = mpsc::channel();
        let writer = std::thread::spawn(move || write(&title, &updates, print));
        Self { steps, writer }
    }

    fn update(&self, text: String) {
        // It fails only if the writer has ended.
        let _ = self.steps.send(text);
    }

    fn end(self) {
        drop(self.steps);
        let _ = self.writer.join();
    }
}

fn write(title: &str, updates: &mpsc::Receiver<String>, print: impl Fn(&str)) {
    let start = Instant::now();
    let mut latest: Option<String> = None;
    let mut shown: Option<String> = None;
    let mut wait = PATIENCE;
    loop {
        match updates.recv_timeout(wait) {
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Ok(text) => {
                latest = Some(text);
                wait = PATIENCE.saturating_sub(start.elapsed());
                if !wait.is_zero() {
                    continue;
                }
                if latest == shown {
                    wait = REMINDER;
                    continue;
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if let Some(text) = &latest {
            let again = if latest == shown {
                format!(", {} s so far", start.elapsed().as_secs())
            } else {
                String::new()
            };
            print(&format!("{title}: {text}{again}"));
            shown.clone_from(&latest);
        }
        wait = REMINDER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn quick_work_leaves_no_lines_in_a_log() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let plain = Plain::start("w".to_owned(), move |line| sink.lock().unwrap().push(line.to_owned()));
        plain.update("restoring".to_owned());
        plain.end();
        assert!(lines.lock().unwrap().is_empty());
    }

    #[test]
    fn slow_work_logs_each_step() {
        let (lines, seen) = mpsc::channel();
        let plain = Plain::start("w".to_owned(), move |line| lines.send(line.to_owned()).unwrap());
        plain.update("booting".to_owned());
        assert_eq!(seen.recv_timeout(Duration::from_secs(30)).unwrap(), "w: booting");
        plain.update("booted 50 %".to_owned());
        assert_eq!(seen.recv_timeout(Duration::from_secs(30)).unwrap(), "w: booted 50 %");
        plain.end();
    }
}
