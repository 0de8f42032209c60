//! The sizes of the gateway's queues, and the memory that they may take.

use super::frame::{MAX_FRAME, PREFIX, READ_BUFFER};
use super::pool::KEPT;
use super::track;
use crate::flow::Limits;
use crate::flow::budget::Budget;
use crate::flow::limits::QUERIES;
use crate::policy::sniff::MAX_BYTES;

/// Most frames that wait for QEMU to read them. More would only add delay.
pub(crate) const FRAMES_DOWN: usize = 64;

/// Most packets that wait for their flow's task. A window full of large packets is a handful; small ones are bounded by
/// [`QUEUED_UP`] as well.
pub(crate) const PACKETS_PER_FLOW: usize = 128;

/// Most bytes of packets of one VM that wait for its flows.
pub(crate) const QUEUED_UP: usize = 8 << 20;

/// Most datagrams that wait for their association's task.
pub(crate) const DATAGRAMS: usize = 32;

/// The most memory that a VM with these limits can make us use, in bytes.
const fn most_memory(limits: &Limits) -> usize {
    // The first bytes of a connection may be held three times besides: by the gate, by the sniffer, and of the
    // answer.
    let flows = Budget::most(limits.flows) + limits.flows * 3 * MAX_BYTES;
    let frames = (2 * FRAMES_DOWN + KEPT) * (PREFIX + MAX_FRAME);
    let tracks = track::LIMIT * track::TRACK;
    flows + frames + tracks + QUEUED_UP + READ_BUFFER + QUERIES * 128 * 1024
}

const _: () = assert!(most_memory(&Limits::DEFAULT) < 128 << 20);
