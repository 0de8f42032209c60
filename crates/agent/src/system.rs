//! Calls about the guest as a whole: its disk, its identity, its shutdown.

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use agentiso_vm::NetworkIdentity;
use bytes::Bytes;
use tokio::time::timeout;

use super::client::{AgentClient, CALL_DEADLINE};
use super::error::AgentError;

/// Mounting may replay a journal, and growing writes group descriptors; both can be slow in an emulated VM on a busy
/// host.
const ATTACH_DEADLINE: Duration = Duration::from_secs(120);

/// For writing back all dirty pages of the guest.
const SYNC_DEADLINE: Duration = Duration::from_secs(120);

/// The time that a shutdown may take beyond the grace time of the processes.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(60);

/// For one process start in an emulated VM on a busy host.
const SPAWN_DEADLINE: Duration = Duration::from_secs(1);

/// The stage of the guest's boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The agent runs from the initramfs; no disk is attached.
    Bare,
    /// The disk is the root file system.
    Rooted,
}

impl Stage {
    pub(super) fn from_wire(stage: v1::Stage) -> Result<Self, AgentError> {
        match stage {
            v1::Stage::Bare => Ok(Self::Bare),
            v1::Stage::Rooted => Ok(Self::Rooted),
            v1::Stage::Unspecified => Err(AgentError::violation("hello", "the stage is missing")),
        }
    }
}

/// The program that runs as process 1 of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitMode {
    /// The agent's own init.
    Fast,
    /// The init of the image.
    System,
}

impl InitMode {
    pub(super) fn from_wire(mode: v1::InitMode) -> Result<Self, AgentError> {
        match mode {
            v1::InitMode::Fast => Ok(Self::Fast),
            v1::InitMode::System => Ok(Self::System),
            v1::InitMode::Unspecified => Err(AgentError::violation("hello", "the init mode is missing")),
        }
    }

    fn to_wire(self) -> v1::InitMode {
        match self {
            Self::Fast => v1::InitMode::Fast,
            Self::System => v1::InitMode::System,
        }
    }
}

/// The disk that becomes the root file system, and the options for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachRoot {
    /// Device file in the guest.
    pub device: String,
    /// Its file system.
    pub fstype: String,
    /// Whether the file system is grown to the size of the disk.
    pub grow: bool,
    /// The program that shall run as process 1.
    pub init_mode: InitMode,
}

impl Default for AttachRoot {
    fn default() -> Self {
        Self { device: "/dev/vda".into(), fstype: "ext4".into(), grow: true, init_mode: InitMode::Fast }
    }
}

/// The root file system after it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// False when it had been attached before.
    pub attached: bool,
    /// Size of the file system.
    pub size_bytes: u64,
}

/// The clock, random numbers, names and addresses that make each guest distinct.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Wall clock to be set.
    pub realtime: SystemTime,
    /// Random bytes from the host, at least [`limits::MIN_ENTROPY_BYTES`].
    pub entropy: Vec<u8>,
    /// Host name; a valid label or dotted name.
    pub hostname: String,
    /// 32 lower-case hexadecimal digits.
    pub machine_id: String,
    /// The network, if the VM has a network card.
    pub network: Option<NetworkIdentity>,
}

/// Memory as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// The total.
    pub total_bytes: u64,
    /// Memory that programs could still get.
    pub available_bytes: u64,
    /// Resident memory of the agent.
    pub agent_rss_bytes: u64,
}

impl AgentClient {
    /// Makes a disk the root file system. Succeeds at once when that was done before.
    pub async fn attach_root(&self, root: AttachRoot) -> Result<Attached, AgentError> {
        let request = v1::AttachRootRequest {
            device: root.device,
            fstype: root.fstype,
            grow: root.grow,
            init_mode: root.init_mode.to_wire().into(),
        };
        let mut stub = self.stub::<v1::AttachRootResponse>();
        let answer = self.answer("attach_root", ATTACH_DEADLINE, stub.attach_root(request)).await?;
        Ok(Attached { attached: answer.attached, size_bytes: answer.size_bytes })
    }

    /// Gives the guest its own clock, random numbers, names and addresses. Returns the network device's name.
    pub async fn identify(&self, identity: Identity) -> Result<Option<String>, AgentError> {
        let request = v1::IdentifyRequest {
            realtime_ns: nanoseconds(identity.realtime),
            entropy: identity.entropy.into(),
            hostname: identity.hostname,
            machine_id: identity.machine_id,
            network: identity.network.map(|network| v1::Network {
                mac: Bytes::copy_from_slice(&network.mac),
                address: network.address.to_string(),
                prefix: network.prefix.into(),
                gateway: network.gateway.to_string(),
                dns: network.dns.iter().map(Ipv4Addr::to_string).collect(),
            }),
        };
        let mut stub = self.stub::<v1::IdentifyResponse>();
        let answer = self.answer("identify", CALL_DEADLINE, stub.identify(request)).await?;
        Ok(Some(answer.interface).filter(|name| !name.is_empty() && name.len() < 16))
    }

    /// Sets the guest's clock after a pause. Agents in snapshots from before this call existed leave their clock
    /// unchanged.
    pub async fn catch_up(&self) -> Result<(), AgentError> {
        if self.hello().features.iter().any(|feature| feature == "clock.catch_up") {
            let request = v1::CatchUpRequest { realtime_ns: nanoseconds(SystemTime::now()) };
            let mut stub = self.stub::<v1::CatchUpResponse>();
            self.answer("catch up", CALL_DEADLINE, stub.catch_up(request)).await?;
        }
        Ok(())
    }

    /// Grows the root file system to the size of its disk, once the disk has at least `expected_bytes`. Returns the new
    /// size.
    pub async fn grow_root(&self, expected_bytes: u64) -> Result<u64, AgentError> {
        let mut stub = self.stub::<v1::GrowRootResponse>();
        let request = v1::GrowRootRequest { expected_bytes };
        let answer = self.answer("grow_root", ATTACH_DEADLINE, stub.grow_root(request)).await?;
        Ok(answer.size_bytes)
    }

    /// Writes all dirty pages of the guest to its disk.
    pub async fn sync(&self) -> Result<(), AgentError> {
        let mut stub = self.stub::<v1::SyncResponse>();
        self.answer("sync", SYNC_DEADLINE, stub.sync(v1::SyncRequest {})).await?;
        Ok(())
    }

    /// Sends bytes and gets them back; the cheapest call.
    pub async fn ping(&self, payload: Bytes) -> Result<(), AgentError> {
        too_large("the ping payload", payload.len(), limits::MAX_PING_BYTES)?;
        let mut stub = self.stub::<v1::PingResponse>();
        let request = v1::PingRequest { payload: payload.clone() };
        let answer = self.answer("ping", CALL_DEADLINE, stub.ping(request)).await?;
        if answer.payload == payload {
            Ok(())
        } else {
            Err(AgentError::violation("ping", "a different payload came back"))
        }
    }

    /// Times `count` starts of `/bin/sh -c true` inside the guest.
    pub async fn spawn_probe(&self, count: u32) -> Result<Vec<Duration>, AgentError> {
        let count = count.clamp(1, limits::MAX_SPAWN_PROBES);
        let mut stub = self.stub::<v1::SpawnProbeResponse>();
        let deadline = CALL_DEADLINE + count * SPAWN_DEADLINE;
        let answer =
            self.answer("spawn_probe", deadline, stub.spawn_probe(v1::SpawnProbeRequest { count })).await?;
        if answer.micros.len() != count as usize {
            return Err(AgentError::violation("spawn_probe", "not as many measurements as requested"));
        }
        Ok(answer.micros.into_iter().map(|micros| Duration::from_micros(micros.into())).collect())
    }

    /// Memory as the guest sees it.
    pub async fn memory_info(&self) -> Result<MemoryInfo, AgentError> {
        let mut stub = self.stub::<v1::MemoryInfoResponse>();
        let answer =
            self.answer("memory_info", CALL_DEADLINE, stub.memory_info(v1::MemoryInfoRequest {})).await?;
        Ok(MemoryInfo {
            total_bytes: answer.total_bytes,
            available_bytes: answer.available_bytes,
            agent_rss_bytes: answer.agent_rss_bytes,
        })
    }

    /// Ends all processes of the guest, leaves its disk clean and switches the VM off. Returns how many processes had
    /// to be killed.
    ///
    /// The VM switches off when the last clone of this client is dropped, or shortly after at the latest. Only QEMU's
    /// exit proves that it did.
    pub async fn shutdown(&self, grace: Duration) -> Result<u32, AgentError> {
        let grace_ms =
            u32::try_from(grace.as_millis()).unwrap_or(u32::MAX).min(limits::MAX_SHUTDOWN_GRACE_MS);
        let mut stub = self.stub::<v1::ShutdownResponse>();
        let deadline = SHUTDOWN_MARGIN + Duration::from_millis(grace_ms.into());
        let answer =
            self.answer("shutdown", deadline, stub.shutdown(v1::ShutdownRequest { grace_ms })).await?;
        Ok(answer.killed)
    }

    /// Waits until the connection has ended, at most for `limit`. Returns false if it has not.
    pub async fn closed_within(&self, limit: Duration) -> bool {
        timeout(limit, self.closed()).await.is_ok()
    }
}

/// Refuses a part of a request that exceeds the guest's limit, before it is sent.
pub(super) fn too_large(what: &'static str, actual: usize, limit: usize) -> Result<(), AgentError> {
    if actual > limit { Err(AgentError::RequestTooLarge { what, actual, limit }) } else { Ok(()) }
}

/// Nanoseconds since 1970.
fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
