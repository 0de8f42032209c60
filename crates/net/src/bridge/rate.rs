//! Limits a link's rate, as `tc` does: a token bucket filter that queues packets.

use crate::netlink::Message;

const NEW_QUEUE: u16 = 36;
const DELETE_QUEUE: u16 = 37;

/// `NLM_F_CREATE | NLM_F_REPLACE`.
const PUT: u16 = 0x500;

/// `TC_H_ROOT`: replaces the link's own queue.
const ROOT: u32 = u32::MAX;

/// Smallest burst: a few of the largest packets. At high rates a burst is what comes within some milliseconds.
const BURST: u32 = 256 << 10;
const BURSTS_PER_SECOND: u64 = 200;

/// Bytes that may wait. More would only add delay.
const WAITING: u32 = 1 << 20;

/// `TC_LINKLAYER_ETHERNET`.
const ETHERNET: u8 = 1;

pub(super) fn limit(index: u32, rate: u64) -> Message {
    let mut message = Message::new(NEW_QUEUE, PUT, &head(index));
    let burst = u32::try_from(rate / BURSTS_PER_SECOND).unwrap_or(u32::MAX).clamp(BURST, 64 << 20);
    message.text(1, "tbf").nest(2, |options| {
        let mut parameters = vec![0, ETHERNET];
        parameters.extend([0; 6]);
        parameters.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
        // No peak rate.
        parameters.extend([0; 12]);
        parameters.extend(WAITING.max(burst.saturating_mul(2)).to_ne_bytes());
        // The burst is given below, in bytes.
        parameters.extend([0; 8]);
        options.bytes(1, &parameters);
        options.bytes(4, &rate.to_ne_bytes());
        options.number(6, burst);
    });
    message
}

pub(super) fn no_limit(index: u32) -> Message {
    Message::new(DELETE_QUEUE, 0, &head(index))
}

/// `struct tcmsg`.
fn head(index: u32) -> [u8; 20] {
    let mut head = [0; 20];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[12..16].copy_from_slice(&ROOT.to_ne_bytes());
    head
}
