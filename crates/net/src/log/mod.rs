//! What happened on a machine's network: the last records, and those to come.

mod record;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

pub use record::{FlowEvent, FlowRecord};

/// Records kept for one machine: what an agent did in the last minutes, in less than a mebibyte.
pub const KEPT: usize = 2048;

/// Records a follower may lag behind before it loses some (and is told how many).
const LAG: usize = 256;

/// Cheap to clone; all clones are the same log.
#[derive(Clone, Debug)]
pub struct FlowLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kept: Mutex<VecDeque<FlowRecord>>,
    followers: broadcast::Sender<FlowRecord>,
}

impl FlowLog {
    pub fn new() -> Self {
        Self(Arc::new(Inner { kept: Mutex::default(), followers: broadcast::Sender::new(LAG) }))
    }

    pub fn record(&self, mut record: FlowRecord) {
        record.shorten();
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(record.clone());
        // Under the lock, so that followers see the order that the log has. Nobody following is no error.
        let _ = self.0.followers.send(record);
    }

    /// The last records, oldest first.
    pub fn tail(&self, count: usize) -> Vec<FlowRecord> {
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().skip(kept.len().saturating_sub(count)).cloned().collect()
    }

    /// Everything recorded from here on.
    pub fn follow(&self) -> broadcast::Receiver<FlowRecord> {
        self.0.followers.subscribe()
    }

    /// The last records and everything after them, with nothing lost or doubled between the two.
    pub fn tail_and_follow(&self, count: usize) -> (Vec<FlowRecord>, broadcast::Receiver<FlowRecord>) {
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let tail = kept.iter().skip(kept.len().saturating_sub(count)).cloned().collect();
        (tail, self.0.followers.subscribe())
    }
}

impl Default for FlowLog {
    fn default() -> Self {
        Self::new()
    }
}
