//! Bounds that both sides hold each other to.
//!
//! The guest is untrusted, so the host enforces every bound on what it receives; the guest enforces them to keep
//! its own memory small.

use std::time::Duration;

/// Bytes of one output stream that are kept in all, head and tail together.
pub const MAX_CAPTURE_BYTES: u64 = 2 * MIB;

/// One encoded message: both captured streams of a command and room for the rest of the event.
pub const MAX_MESSAGE_BYTES: usize = (2 * MAX_CAPTURE_BYTES + 256 * 1024) as usize;

/// Payload of one chunk when a file or output is streamed: large enough that per-message cost vanishes, small
/// enough that many transfers at once fit in a small guest.
pub const CHUNK_BYTES: usize = 128 * 1024;

/// Largest chunk a peer may send.
pub const MAX_CHUNK_BYTES: usize = 1024 * 1024;

/// Calls in progress on one connection.
pub const MAX_CONCURRENT_STREAMS: u32 = 256;

/// Commands running at once in one guest. Far below the number of streams, so that file calls always find a slot.
pub const MAX_CONCURRENT_EXECS: usize = 64;

/// File calls running at once in one guest; each may hold a thread and a few chunks.
pub const MAX_CONCURRENT_FILE_CALLS: usize = 32;

/// File calls that wait for one of those to end. Bounded, so that streams remain for everything else.
pub const MAX_WAITING_FILE_CALLS: usize = 128;

/// How long a file call waits for its turn.
pub const MAX_FILE_CALL_WAIT: Duration = Duration::from_secs(10);

/// A shell command line: below the kernel's limit of 128 KiB for one argument.
pub const MAX_COMMAND_BYTES: usize = 127 * 1024;

/// Names and values of a command's environment together. The kernel gives arguments and environment a quarter of
/// the stack limit, 2 MiB by default.
pub const MAX_ENV_BYTES: usize = 512 * 1024;

/// Jobs that an agent knows. When there are more, the oldest of those that have ended is forgotten.
pub const MAX_JOBS: usize = 1000;

/// Jobs running at once. Each takes three of the agent's thousand descriptors.
pub const MAX_RUNNING_JOBS: usize = 200;

/// First bytes kept of each output stream of a job: how it began.
pub const JOB_HEAD_BYTES: usize = 512 * 1024;

/// Last bytes kept of each output stream of a job, beyond the first.
pub const JOB_TAIL_BYTES: usize = MAX_CAPTURE_BYTES as usize - JOB_HEAD_BYTES;

/// Bytes kept of the output of all jobs together, a quarter of the smallest machine. When there is more, the output of
/// jobs that have ended is forgotten first, then the oldest output of those that run.
pub const MAX_JOBS_OUTPUT_BYTES: usize = 32 * MIB as usize;

/// Bytes of a job's command that a list of jobs shows.
pub const MAX_JOB_TITLE_BYTES: usize = 200;

/// Longest time a poll waits for the end of a job.
pub const MAX_POLL_WAIT_MS: u32 = 60_000;

/// Polls that wait at once; others are answered at once. Bounded, so that streams remain for everything else.
pub const MAX_WAITING_POLLS: usize = 16;

/// Connections of programs in the guest that are carried to the host at once.
pub const MAX_LOCAL_CONNECTIONS: usize = 8;

/// Variables that are given to all commands. Half of what one command can have, so that a call can add its own.
pub const MAX_STORED_ENV_BYTES: usize = MAX_ENV_BYTES / 2;

/// The kernel's PATH_MAX without the terminating zero byte.
pub const MAX_PATH_BYTES: usize = 4095;

/// Longest time a command may be given: a day.
pub const MAX_EXEC_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;

/// A file that is edited is held in memory twice.
pub const MAX_EDIT_FILE_BYTES: u64 = 32 * MIB;

/// Entries of one directory listing, of some 100 bytes each on the wire.
pub const MAX_DIR_ENTRIES: u32 = 50_000;

/// Entries in one message of a listing: 255 byte names stay far below [`MAX_MESSAGE_BYTES`].
pub const DIR_BATCH_ENTRIES: usize = 512;

/// Levels of directories in one listing.
pub const MAX_LIST_DEPTH: u32 = 64;

/// A pattern for names in a listing.
pub const MAX_GLOB_BYTES: usize = 1024;

/// Echo payload.
pub const MAX_PING_BYTES: usize = 64 * 1024;

/// Process starts in one probe; at some 10 ms each under emulation this is ten seconds.
pub const MAX_SPAWN_PROBES: u32 = 1000;

/// Least entropy that makes a restored machine differ from its siblings, and most that is taken.
pub const MIN_ENTROPY_BYTES: usize = 64;
/// See [`MIN_ENTROPY_BYTES`].
pub const MAX_ENTROPY_BYTES: usize = 4096;

/// Longest host name the kernel takes.
pub const MAX_HOSTNAME_BYTES: usize = 64;

/// Name servers that the resolver of the C library looks at.
pub const MAX_NAME_SERVERS: usize = 3;

/// Longest grace that processes get at shutdown.
pub const MAX_SHUTDOWN_GRACE_MS: u32 = 60_000;

/// HTTP/2 header list. Error messages travel in headers.
pub const MAX_HEADER_LIST_BYTES: u32 = 16 * 1024;

/// HTTP/2 frame payload.
pub const MAX_HTTP2_FRAME_BYTES: u32 = 64 * 1024;

/// HTTP/2 receive window of one stream: bounds what an unread call holds in memory.
pub const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// HTTP/2 receive window of the connection: bounds what all unread calls together hold in memory. Where it is used up, no
/// other call gets an answer, so it has room for all file calls and as many others.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 * MIB as u32;

/// Unsent bytes that HTTP/2 buffers for one stream.
pub const MAX_SEND_BUFFER_BYTES: usize = 256 * 1024;

/// Text of an error as it is passed on.
pub const MAX_ERROR_TEXT_BYTES: usize = 1024;

const MIB: u64 = 1024 * 1024;

const _: () = {
    assert!(CHUNK_BYTES <= MAX_CHUNK_BYTES && MAX_CHUNK_BYTES < MAX_MESSAGE_BYTES);
    let file_calls = MAX_CONCURRENT_FILE_CALLS + MAX_WAITING_FILE_CALLS;
    let waiting = MAX_WAITING_POLLS + MAX_LOCAL_CONNECTIONS + 1;
    assert!(MAX_CONCURRENT_EXECS + waiting + file_calls < MAX_CONCURRENT_STREAMS as usize);
    assert!(3 * (MAX_CONCURRENT_EXECS + MAX_RUNNING_JOBS) < 900);
    assert!(MAX_RUNNING_JOBS < MAX_JOBS && MAX_JOBS * (MAX_JOB_TITLE_BYTES + 100) < MAX_MESSAGE_BYTES);
    assert!(JOB_HEAD_BYTES + JOB_TAIL_BYTES <= MAX_CAPTURE_BYTES as usize);
    assert!(DIR_BATCH_ENTRIES * 512 < MAX_MESSAGE_BYTES);
    // Paths instead of names, in a listing of several levels.
    assert!(DIR_BATCH_ENTRIES * (MAX_PATH_BYTES + 100) < MAX_MESSAGE_BYTES);
    assert!(2 * MAX_CONCURRENT_FILE_CALLS * STREAM_WINDOW_BYTES as usize <= CONNECTION_WINDOW_BYTES as usize);
    // Percent encoding may triple a text in a header.
    assert!(3 * MAX_ERROR_TEXT_BYTES < MAX_HEADER_LIST_BYTES as usize);
};
