//! The codec of messages. It checks the size of a message and the number of its fields before decoding it.
//!
//! A decoded message takes far more memory than its bytes: an empty entry of a list is two bytes on the wire and some
//! ninety in memory. So every message has its own bounds ([`Bounded`], in `bounds`), and a message that exceeds them is
//! refused before it is decoded.

use std::marker::PhantomData;

use bytes::Buf as _;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

use crate::bounds::Bounded;

/// Encodes as [`tonic_prost::ProstCodec`] does, and decodes only messages within their bounds.
#[derive(Debug)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Bounded + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstDecoder::default())
    }
}

/// Decodes messages that are within their bounds.
#[derive(Debug)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Bounded + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        check(buf.chunk(), buf.remaining(), U::MAX_BYTES, U::MAX_FIELDS)?;
        self.0.decode(buf)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

fn check(message: &[u8], length: usize, max_bytes: usize, max_fields: usize) -> Result<(), Status> {
    if length > max_bytes {
        return Err(Status::out_of_range(format!("a message has {length} bytes; the limit is {max_bytes}")));
    }
    // The buffer is one piece. If it were not, only its first piece could be checked, so it is refused.
    if message.len() < length || !has_at_most(message, max_fields) {
        return Err(Status::out_of_range(format!("malformed message, or more than {max_fields} fields")));
    }
    Ok(())
}

/// Whether this is a message with at most this many fields. Fields of nested messages are not counted.
fn has_at_most(mut message: &[u8], max_fields: usize) -> bool {
    let mut fields = 0;
    while !message.is_empty() {
        fields += 1;
        if fields > max_fields {
            return false;
        }
        let Some(rest) = after_field(message) else { return false };
        message = rest;
    }
    true
}

/// The bytes after the first field; `None` if the bytes do not begin with a field.
fn after_field(message: &[u8]) -> Option<&[u8]> {
    let (key, rest) = varint(message)?;
    match key & 7 {
        0 => varint(rest).map(|(_, rest)| rest),
        1 => rest.get(8..),
        2 => {
            let (length, rest) = varint(rest)?;
            rest.get(usize::try_from(length).ok()?..)
        }
        5 => rest.get(4..),
        // Groups, which our schemas do not use, and invalid wire types.
        _ => None,
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    /// Each byte holds seven of the 64 bits.
    const MAX_BYTES: usize = 10;
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(MAX_BYTES) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::limits;
    use crate::schema::v1;

    fn accepts<U: Message + Bounded>(message: &U) -> bool {
        let bytes = message.encode_to_vec();
        check(&bytes, bytes.len(), U::MAX_BYTES, U::MAX_FIELDS).is_ok()
    }

    #[test]
    fn largest_answers_fit_their_bounds() {
        let info = v1::FileInfo {
            kind: 4,
            size: u64::MAX,
            mode: u32::MAX,
            modified_s: i64::MIN,
            modified_ns: u32::MAX,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let entry = v1::DirEntry { name: vec![b'x'; limits::MAX_PATH_BYTES].into(), info: Some(info) };
        let batch = v1::ListDirBatch { entries: vec![entry; limits::DIR_BATCH_ENTRIES], truncated: true };
        assert!(accepts(&batch));
        let job = v1::JobSummary {
            job_id: u64::MAX,
            shell: vec![b'x'; limits::MAX_JOB_TITLE_BYTES].into(),
            running: true,
            exit_code: Some(-1),
            signal: Some(-1),
            stdout_bytes: u64::MAX,
            stderr_bytes: u64::MAX,
            duration_us: u64::MAX,
        };
        assert!(accepts(&v1::ListJobsResponse { jobs: vec![job; limits::MAX_JOBS] }));
        let micros = vec![u32::MAX; limits::MAX_SPAWN_PROBES as usize];
        assert!(accepts(&v1::SpawnProbeResponse { micros }));
        assert!(accepts(&v1::PingResponse { payload: vec![0; limits::MAX_PING_BYTES].into() }));
        let output: bytes::Bytes = vec![0; limits::MAX_CAPTURE_BYTES as usize].into();
        let stream = Some(v1::Captured { head: output, total_bytes: u64::MAX, ..v1::Captured::default() });
        let state = v1::PollJobResponse { stdout: stream.clone(), stderr: stream, ..Default::default() };
        assert!(accepts(&state));
        assert!(accepts(&v1::ExecOrJobResponse { job_id: Some(u64::MAX), state: Some(state) }));
        assert!(accepts(&v1::ReadFileChunk {
            info: Some(info),
            data: vec![0; limits::MAX_CHUNK_BYTES].into()
        }));
    }

    #[test]
    fn lists_of_empty_entries_are_refused() {
        let batch = v1::ListDirBatch { entries: vec![v1::DirEntry::default(); 10_000], truncated: false };
        assert!(!accepts(&batch));
        assert!(!accepts(&v1::ListJobsResponse { jobs: vec![v1::JobSummary::default(); 10_000] }));
        assert!(!accepts(&v1::HelloResponse { features: vec![String::new(); 10_000], ..Default::default() }));
        // Two thousand unpacked numbers, which our encoders do not write.
        assert!(!has_at_most(&[8, 1].repeat(2000), v1::SpawnProbeResponse::MAX_FIELDS));
        assert!(!accepts(&v1::SpawnProbeResponse { micros: vec![1; 100_000] }));
    }

    #[test]
    fn requests_may_have_many_variables() {
        let env = (0..20_000).map(|number| (format!("V{number}"), String::new())).collect();
        assert!(accepts(&v1::ExecRequest { env, ..Default::default() }));
    }

    proptest! {
        #[test]
        fn no_bytes_decode_beyond_the_counted_fields(
            bytes in proptest::collection::vec(prop_oneof![0u8..32, any::<u8>()], 0..200),
            max in 0usize..20,
        ) {
            // A message within the bound has no more entries than the bound.
            if has_at_most(&bytes, max) && let Ok(batch) = v1::ListDirBatch::decode(&bytes[..]) {
                prop_assert!(batch.entries.len() <= max);
            }
        }
    }
}
