//! The flow log of one VM: its last records, and a stream of new ones.
//!
//! ```text
//! record ──┬── the last records, in memory ── tail
//!          ├── followers
//!          └── a task that writes files, so that recording never waits for a disk
//! ```

mod file;
mod limit;
mod recent;
mod record;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

pub use record::{FlowEvent, FlowRecord};

pub(crate) use limit::Complaints;
pub use recent::KEPT;

use file::Files;
use recent::RecentRecords;
use writer::Writer;

/// Records a follower may lag behind before it loses some (and is told how many).
const LAG: usize = 256;

/// Cheap to clone; all clones are the same log.
#[derive(Clone, Debug)]
pub struct FlowLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recent: Mutex<RecentRecords>,
    followers: broadcast::Sender<FlowRecord>,
    writer: Option<Writer>,
}

impl FlowLog {
    /// A log in memory only.
    pub fn new() -> Self {
        Self::with(RecentRecords::default(), None)
    }

    /// A log that continues the one in this directory. Must be called within the runtime.
    pub fn kept_in(directory: &Path) -> Self {
        let files = Files::new(directory);
        let before = files.read();
        Self::with(before, Some(Writer::start(files)))
    }

    fn with(recent: RecentRecords, writer: Option<Writer>) -> Self {
        let followers = broadcast::Sender::new(LAG);
        Self(Arc::new(Inner { recent: Mutex::new(recent), followers, writer }))
    }

    pub fn record(&self, mut record: FlowRecord) {
        record.shorten();
        let mut recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.add(record.clone());
        // Under the lock, so that all readers see one order. Sending fails only if nothing follows.
        if let Some(writer) = &self.0.writer {
            writer.write(record.clone());
        }
        let _ = self.0.followers.send(record);
    }

    /// Returns when all records are in the files.
    pub async fn flush(&self) {
        if let Some(writer) = &self.0.writer {
            writer.flush().await;
        }
    }

    /// Closes the files: nothing is written from here on, and the directory may be removed.
    pub async fn leave_files(&self) {
        if let Some(writer) = &self.0.writer {
            writer.end().await;
        }
    }

    /// The last records, oldest first.
    pub fn tail(&self, count: usize) -> Vec<FlowRecord> {
        let recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.last(count)
    }

    /// Everything recorded from here on.
    pub fn follow(&self) -> broadcast::Receiver<FlowRecord> {
        self.0.followers.subscribe()
    }

    /// The last records and everything after them, with nothing lost or doubled between the two.
    pub fn tail_and_follow(&self, count: usize) -> (Vec<FlowRecord>, broadcast::Receiver<FlowRecord>) {
        let recent = self.0.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let tail = recent.last(count);
        (tail, self.0.followers.subscribe())
    }
}

impl Default for FlowLog {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Transport;
    use proptest::prelude::*;
    use std::net::SocketAddrV4;

    fn record(port: u16) -> FlowRecord {
        let to = SocketAddrV4::new([192, 0, 2, 1].into(), port);
        FlowRecord::now(FlowEvent::Opened, Transport::Tcp, to)
    }

    #[tokio::test]
    async fn follower_sees_records_after_the_tail() {
        let log = FlowLog::new();
        log.record(record(1));
        let (tail, mut follower) = log.tail_and_follow(10);
        log.clone().record(record(2));
        assert_eq!(tail.len(), 1);
        assert_eq!(follower.recv().await.unwrap().port, Some(2));
        assert!(follower.try_recv().is_err());
        for port in 0..1000 {
            log.record(record(port));
        }
        assert!(matches!(follower.recv().await, Err(broadcast::error::RecvError::Lagged(_))));
    }

    #[test]
    fn record_prints_one_line_and_serializes_as_object() {
        let mut closed = record(443);
        closed.at = "2026-01-02T03:04:05.678Z".parse().unwrap();
        closed.event = FlowEvent::Closed;
        closed.guest_port = Some(40000);
        closed.name = Some("example.com".to_owned());
        closed.rule = Some("allow_internet".to_owned());
        closed.message = Some("the policy changed\n\x1b[31m".to_owned());
        (closed.bytes_up, closed.bytes_down) = (10, 20);
        assert_eq!(
            closed.to_string(),
            "2026-01-02T03:04:05.678Z closed tcp 192.0.2.1:443 (example.com) from port 40000 by allow_internet, \
             10 bytes up, 20 bytes down: the policy changed\\n\\u{1b}[31m"
        );
        let value = serde_json::to_value(&closed).unwrap();
        assert_eq!(value["event"], "closed");
        assert_eq!(value["transport"], "tcp");
        assert_eq!(serde_json::from_value::<FlowRecord>(value).unwrap(), closed);
    }

    proptest! {
        #[test]
        fn records_stay_short_and_on_one_line(name in "\\PC{0,10}|.{500,600}") {
            let log = FlowLog::new();
            let mut long = record(1);
            long.name = Some(name.clone() + "\n\r\x1b");
            long.message = Some(name);
            log.record(long);
            let recent = log.tail(1).remove(0);
            prop_assert!(recent.message.as_ref().is_some_and(|message| message.len() <= 520));
            prop_assert!(!recent.to_string().contains(|c: char| c.is_control()));
        }
    }
}
