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
pub const STREAM_WINDOW_BYTES: u32 = MIB as u32;

/// HTTP/2 receive window of the connection: bounds what all unread calls together hold in memory.
pub const CONNECTION_WINDOW_BYTES: u32 = 4 * MIB as u32;

/// Unsent bytes that HTTP/2 buffers for one stream.
pub const MAX_SEND_BUFFER_BYTES: usize = 256 * 1024;

/// Text of an error as it is passed on.
pub const MAX_ERROR_TEXT_BYTES: usize = 1024;

const MIB: u64 = 1024 * 1024;

const _: () = {
    assert!(CHUNK_BYTES <= MAX_CHUNK_BYTES && MAX_CHUNK_BYTES < MAX_MESSAGE_BYTES);
    let file_calls = MAX_CONCURRENT_FILE_CALLS + MAX_WAITING_FILE_CALLS;
    assert!(MAX_CONCURRENT_EXECS + file_calls < MAX_CONCURRENT_STREAMS as usize);
    assert!(DIR_BATCH_ENTRIES * 512 < MAX_MESSAGE_BYTES);
    assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);
    // Percent encoding may triple a text in a header.
    assert!(3 * MAX_ERROR_TEXT_BYTES < MAX_HEADER_LIST_BYTES as usize);
};
