//! Progress notifications: sent if and only if the request carried a token for them.
//!
//! Reports come from code that must not wait, so they pass through a bounded queue. If the client reads slowly, reports
//! are dropped and the work is not delayed. The values only grow, as the protocol demands.

use agentiso_daemon::Progress;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;

/// Reports that may wait for a slow client.
const QUEUE: usize = 16;

#[derive(Debug)]
struct Report {
    message: String,
    fraction: Option<f32>,
}

/// The receiver of a tool's reports.
#[derive(Clone, Debug)]
pub struct Reporter(Option<mpsc::Sender<Report>>);

impl Reporter {
    /// A reporter that discards reports.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Whether the client wants reports. If not, work that only serves reporting can be skipped.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    pub fn report(&self, message: &str, fraction: Option<f32>) {
        if let Some(queue) = &self.0 {
            // A full queue means that the client reads more slowly than reports come.
            let _ = queue.try_send(Report { message: message.to_owned(), fraction });
        }
    }

    /// The same reporter in the form that the daemon's operations take.
    pub(crate) fn as_progress(&self) -> Progress {
        match &self.0 {
            None => Progress::default(),
            Some(_) => {
                let reporter = self.clone();
                Progress::new(move |step, fraction| reporter.report(step, fraction))
            }
        }
    }
}

/// Sends the reports of one reporter to the client.
pub(crate) struct Pump {
    reports: mpsc::Receiver<Report>,
    peer: Peer<RoleServer>,
    token: ProgressToken,
}

/// A reporter for one request, and its pump if the request wants reports.
pub(crate) fn channel(token: Option<ProgressToken>, peer: Peer<RoleServer>) -> (Reporter, Option<Pump>) {
    match token {
        None => (Reporter(None), None),
        Some(token) => {
            let (queue, reports) = mpsc::channel(QUEUE);
            (Reporter(Some(queue)), Some(Pump { reports, peer, token }))
        }
    }
}

impl Pump {
    /// Runs until every reporter is gone and the last report is sent.
    pub(crate) async fn run(mut self) {
        let mut count: f64 = 0.0;
        while let Some(report) = self.reports.recv().await {
            count += 1.0;
            let message = match report.fraction {
                Some(fraction) => format!("{} ({:.0} %)", report.message, f64::from(fraction) * 100.0),
                None => report.message,
            };
            let param = ProgressNotificationParam::new(self.token.clone(), count).with_message(message);
            if let Err(error) = self.peer.notify_progress(param).await {
                tracing::debug!(%error, "a progress report could not be sent");
                return;
            }
        }
    }
}
