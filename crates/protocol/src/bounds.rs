//! The bounds of every message, in bytes and in fields. They are checked before the message is decoded.
//!
//! Answers come from an untrusted guest, so their bounds are as narrow as the call allows, with room for fields that
//! newer agents add. Requests come from the host and are bounded in bytes alone, because an environment may have
//! thousands of variables.

use crate::limits;
use crate::schema::v1;

/// The bounds of a message before it is decoded.
pub trait Bounded {
    /// Bytes on the wire.
    const MAX_BYTES: usize;
    /// Fields of the message itself; every entry of a list counts as one.
    const MAX_FIELDS: usize;
}

/// A message of a few numbers and short texts.
const SMALL: usize = 4 * 1024;

/// Fields of a message without a list, with room for the fields of newer agents.
const FEW: usize = 64;

/// Features that an agent names. There are a handful.
const MAX_FEATURES: usize = 256;

macro_rules! bounds {
    ($($message:ident: $bytes:expr, $fields:expr;)*) => {
        $(impl Bounded for v1::$message {
            const MAX_BYTES: usize = $bytes;
            const MAX_FIELDS: usize = $fields;
        })*
    };
}

bounds! {
    Accepted: SMALL, FEW;
    AttachRootResponse: SMALL, FEW;
    CarryChunk: limits::MAX_CHUNK_BYTES + SMALL, FEW;
    CatchUpResponse: SMALL, FEW;
    EditFileResponse: SMALL, FEW;
    ExecEvent: limits::MAX_MESSAGE_BYTES, FEW;
    ExecOrJobResponse: limits::MAX_MESSAGE_BYTES, FEW;
    GrowRootResponse: SMALL, FEW;
    HelloResponse: 64 * 1024, MAX_FEATURES + FEW;
    IdentifyResponse: SMALL, FEW;
    KillJobResponse: SMALL, FEW;
    ListDirBatch: limits::DIR_BATCH_ENTRIES * (limits::MAX_PATH_BYTES + 100) + SMALL, limits::DIR_BATCH_ENTRIES + FEW;
    ListJobsResponse: limits::MAX_JOBS * (limits::MAX_JOB_TITLE_BYTES + 100) + SMALL, limits::MAX_JOBS + FEW;
    MemoryInfoResponse: SMALL, FEW;
    PingResponse: limits::MAX_PING_BYTES + SMALL, FEW;
    PollJobResponse: limits::MAX_MESSAGE_BYTES, FEW;
    ReadFileChunk: limits::MAX_CHUNK_BYTES + SMALL, FEW;
    ReadTreeChunk: limits::MAX_CHUNK_BYTES + SMALL, FEW;
    SetEnvResponse: SMALL, FEW;
    ShutdownResponse: SMALL, FEW;
    SpawnProbeResponse: 5 * limits::MAX_SPAWN_PROBES as usize + SMALL, limits::MAX_SPAWN_PROBES as usize + FEW;
    StartJobResponse: SMALL, FEW;
    StatResponse: SMALL, FEW;
    SyncResponse: SMALL, FEW;
    WriteFileResponse: SMALL, FEW;
    AttachRootRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    CarryRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    CatchUpRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    EditFileRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    ExecOrJobRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    ExecRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    GrowRootRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    HelloRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    IdentifyRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    KillJobRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    ListDirRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    ListJobsRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    ListenRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    MemoryInfoRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    PingRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    PollJobRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    ReadFileRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    ReadTreeRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    SetEnvRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    ShutdownRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    SpawnProbeRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    StartJobRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    StatRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    SyncRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
    WriteFileRequest: limits::MAX_MESSAGE_BYTES, usize::MAX;
}
