//! Limits of the protocol, which both sides enforce.
//!
//! The host enforces every limit on what it receives, because the guest is untrusted. The guest enforces them to keep
//! its own memory small.

use std::time::Duration;

/// Bytes of one output stream that are kept, head and tail together.
pub const MAX_CAPTURE_BYTES: u64 = 2 * MIB;

/// One encoded message: both captured streams of a command and room for the rest of the event.
pub const MAX_MESSAGE_BYTES: usize = (2 * MAX_CAPTURE_BYTES + 256 * 1024) as usize;

/// Payload of one chunk when a file or output is streamed: large enough that the cost per message is negligible, small
/// enough that many transfers at once fit into a small guest.
pub const CHUNK_BYTES: usize = 128 * 1024;

/// Largest chunk a peer may send.
pub const MAX_CHUNK_BYTES: usize = 1024 * 1024;

/// Concurrent calls on one connection.
pub const MAX_CONCURRENT_STREAMS: u32 = 256;

/// Concurrent commands in one guest. Far below the number of streams, so that streams remain for file calls.
pub const MAX_CONCURRENT_EXECS: usize = 64;

/// Concurrent file calls in one guest. Each may hold a thread and a few chunks.
pub const MAX_CONCURRENT_FILE_CALLS: usize = 32;

/// File calls that wait for a running one to end. Bounded, so that streams remain for other calls.
pub const MAX_WAITING_FILE_CALLS: usize = 128;

/// The longest time that a file call waits for its turn.
pub const MAX_FILE_CALL_WAIT: Duration = Duration::from_secs(10);

/// A shell command line: below the kernel's limit of 128 KiB for one argument.
pub const MAX_COMMAND_BYTES: usize = 127 * 1024;

/// Names and values of a command's environment together. The kernel gives arguments and environment a quarter of
/// the stack limit, 2 MiB by default.
pub const MAX_ENV_BYTES: usize = 512 * 1024;

/// Jobs that an agent keeps. When there are more, the oldest ended job is dropped.
pub const MAX_JOBS: usize = 1000;

/// Concurrent jobs. Each takes three of the agent's thousand descriptors.
pub const MAX_RUNNING_JOBS: usize = 200;

/// First bytes kept of each output stream of a job.
pub const JOB_HEAD_BYTES: usize = 512 * 1024;

/// Last bytes kept of each output stream of a job, beyond the first.
pub const JOB_TAIL_BYTES: usize = MAX_CAPTURE_BYTES as usize - JOB_HEAD_BYTES;

/// Bytes kept of the output of all jobs together: a quarter of the memory of the smallest VM. When there is more, the
/// output of ended jobs is dropped first, then the oldest output of running ones.
pub const MAX_JOBS_OUTPUT_BYTES: usize = 32 * MIB as usize;

/// Bytes of a job's command that a list of jobs shows.
pub const MAX_JOB_TITLE_BYTES: usize = 200;

/// The longest time that a poll waits for the end of a job.
pub const MAX_POLL_WAIT_MS: u32 = 60_000;

/// Polls that wait at the same time; further ones are answered immediately. Bounded, so that streams remain for other
/// calls.
pub const MAX_WAITING_POLLS: usize = 16;

/// Concurrent connections of programs in the guest that are carried to the host.
pub const MAX_LOCAL_CONNECTIONS: usize = 8;

/// Bytes of the variables that all commands get: half of one command's limit, so that a call can add its own.
pub const MAX_STORED_ENV_BYTES: usize = MAX_ENV_BYTES / 2;

/// The kernel's PATH_MAX without the terminating zero byte.
pub const MAX_PATH_BYTES: usize = 4095;

/// The longest time limit of a command: a day.
pub const MAX_EXEC_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;

/// The largest file that can be edited. Editing holds it in memory twice.
pub const MAX_EDIT_FILE_BYTES: u64 = 32 * MIB;

/// Entries of one directory listing, of some 100 bytes each on the wire.
pub const MAX_DIR_ENTRIES: u32 = 50_000;

/// Entries in one message of a listing: 255 byte names stay far below [`MAX_MESSAGE_BYTES`].
pub const DIR_BATCH_ENTRIES: usize = 512;

/// Levels of directories in one listing.
pub const MAX_LIST_DEPTH: u32 = 64;

/// The longest pattern for names in a listing.
pub const MAX_GLOB_BYTES: usize = 1024;

/// Echo payload.
pub const MAX_PING_BYTES: usize = 64 * 1024;

/// Process starts in one probe. At some 10 ms each under emulation, this takes ten seconds.
pub const MAX_SPAWN_PROBES: u32 = 1000;

/// Least entropy that makes a restored VM differ from the other VMs of its template or snapshot.
pub const MIN_ENTROPY_BYTES: usize = 64;
/// Most entropy that is accepted.
pub const MAX_ENTROPY_BYTES: usize = 4096;

/// The longest host name that the kernel accepts.
pub const MAX_HOSTNAME_BYTES: usize = 64;

/// Name servers that the C library's resolver uses.
pub const MAX_NAME_SERVERS: usize = 3;

/// The longest time that processes get to end at shutdown.
pub const MAX_SHUTDOWN_GRACE_MS: u32 = 60_000;

/// HTTP/2 header list. Error messages travel in headers.
pub const MAX_HEADER_LIST_BYTES: u32 = 16 * 1024;

/// HTTP/2 frame payload.
pub const MAX_HTTP2_FRAME_BYTES: u32 = 64 * 1024;

/// HTTP/2 receive window of one stream: bounds what an unread call holds in memory.
pub const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// HTTP/2 receive window of the connection: bounds what all unread calls together hold in memory. When it is used up,
/// no other call gets an answer, so it has room for all file calls and as many other calls.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 * MIB as u32;

/// Unsent bytes that HTTP/2 buffers for one stream.
pub const MAX_SEND_BUFFER_BYTES: usize = 256 * 1024;

/// The longest text of an error.
pub(crate) const MAX_ERROR_TEXT_BYTES: usize = 1024;

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
    // Percent encoding may triple the length of a text in a header.
    assert!(3 * MAX_ERROR_TEXT_BYTES < MAX_HEADER_LIST_BYTES as usize);
};
