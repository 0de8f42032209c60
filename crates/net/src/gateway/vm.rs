//! One VM on the gateway: the state that all its tasks share.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU16};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::counters::{Counters, count};
use super::link::{Frame, Link, Queues};
use super::queues::{DATAGRAMS, FRAMES_DOWN, PACKETS_PER_FLOW};
use super::stack::Stack;
use super::switch::Switch;
use super::table::{FlowKey, Table};
use super::track::Tracks;
use crate::flow::budget::Budget;
use crate::flow::limits::QUERIES;
use crate::flow::log::{Complaints, FlowEvent, FlowLog, FlowRecord};
use crate::flow::task_group::TaskGroup;
use crate::flow::{NetIdentity, Settings};
use crate::policy::{Guard, Transport};

#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) identity: NetIdentity,
    pub(crate) guard: Guard,
    pub(crate) log: FlowLog,
    pub(crate) link: Link,
    /// The reading ends of the link's queues, for the writer of the newest connection.
    pub(crate) frames: tokio::sync::Mutex<Queues>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) switch: Switch,
    pub(crate) flows: Table<FlowKey>,
    pub(crate) associations: Table<FlowKey>,
    /// Connections whose server has not answered.
    pub(crate) connecting: Arc<Semaphore>,
    pub(crate) queries: Arc<Semaphore>,
    /// Memory of its connections.
    pub(crate) budget: Budget,
    pub(crate) counters: Counters,
    /// Starts as the name in [`NetIdentity`].
    name: RwLock<String>,
    /// VMs that share one of these groups may be reached.
    pub(crate) groups: RwLock<BTreeSet<String>>,
    /// The search for a free source port of the gateway continues here.
    pub(crate) next_port: AtomicU16,
    pub(crate) tasks: TaskTracker,
    pub(crate) ended: CancellationToken,
    /// Tasks of the running VM.
    pub(super) vm_tasks: Mutex<TaskGroup>,
    /// Tasks of the newest connection of its network card.
    pub(super) connection_tasks: Mutex<TaskGroup>,
    /// No VM runs on this attachment.
    pub(super) vacant: AtomicBool,
    /// Connections that it has opened to other VMs.
    tracks: Mutex<Tracks>,
    /// Stacks of finished connections, for new ones.
    spares: Mutex<Vec<Stack>>,
    complaints: Complaints,
}

impl Vm {
    pub(crate) fn new(
        identity: NetIdentity,
        guard: Guard,
        log: FlowLog,
        settings: Arc<Settings>,
        switch: Switch,
    ) -> Self {
        let (link, frames) = Link::new(identity.mac, FRAMES_DOWN);
        let limits = settings.limits;
        let ended = CancellationToken::new();
        Self {
            name: RwLock::new(identity.name.clone()),
            identity,
            guard,
            log,
            link,
            frames: tokio::sync::Mutex::new(frames),
            settings,
            switch,
            flows: Table::new(limits.flows, PACKETS_PER_FLOW),
            associations: Table::new(limits.associations, DATAGRAMS),
            connecting: Arc::new(Semaphore::new(limits.connecting)),
            queries: Arc::new(Semaphore::new(QUERIES)),
            budget: Budget::default(),
            counters: Counters::default(),
            groups: RwLock::default(),
            next_port: AtomicU16::new(0),
            tasks: TaskTracker::new(),
            vm_tasks: Mutex::new(TaskGroup::within(&ended)),
            connection_tasks: Mutex::new(TaskGroup::within(&ended)),
            vacant: AtomicBool::new(false),
            ended,
            tracks: Mutex::new(Tracks::new(Instant::now())),
            spares: Mutex::default(),
            complaints: Complaints::new(),
        }
    }

    pub(crate) fn name(&self) -> String {
        self.name.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Sends a frame of our own, if there is room for it.
    pub(crate) fn send(&self, frame: Option<Frame>) {
        if let Some(frame) = frame
            && !self.link.send(frame)
        {
            self.overflowed();
        }
    }

    pub(crate) fn tracks(&self) -> MutexGuard<'_, Tracks> {
        self.tracks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn spares(&self) -> MutexGuard<'_, Vec<Stack>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn overflowed(&self) {
        count(&self.counters.overflowed);
    }

    /// Records a refusal or failure in the log, unless there were too many within this second.
    pub(crate) fn complain(
        &self,
        event: FlowEvent,
        transport: Transport,
        guest_port: Option<u16>,
        to: SocketAddrV4,
        message: impl FnOnce() -> String,
    ) {
        self.complain_about(event, transport, guest_port, to, None, message);
    }

    pub(crate) fn complain_about(
        &self,
        event: FlowEvent,
        transport: Transport,
        guest_port: Option<u16>,
        to: SocketAddrV4,
        name: Option<String>,
        message: impl FnOnce() -> String,
    ) {
        if !self.complaints.admit() {
            return;
        }
        let mut record = FlowRecord::now(event, transport, to);
        record.guest_port = guest_port;
        record.name = name;
        record.message = Some(message());
        self.log.record(record);
    }
}
