//! Turns data from a guest into a stream that says when it is complete.

use agentiso_host::agent::{FileReader, TreeReader};
use futures::StreamExt;

use super::convert::agent_failure;
use crate::vms::{Arrived, Pieces};

pub(super) fn file_pieces(reader: FileReader) -> Pieces {
    futures::stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(data)) => Some((Ok(Arrived::Data(data)), Some(reader))),
            Ok(None) => Some((Ok(Arrived::End { skipped: 0 }), None)),
            Err(error) => Some((Err(agent_failure(error)), None)),
        }
    })
    .boxed()
}

pub(super) fn tree_pieces(reader: TreeReader) -> Pieces {
    futures::stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(data)) => Some((Ok(Arrived::Data(data)), Some(reader))),
            Ok(None) => Some((Ok(Arrived::End { skipped: reader.skipped() }), None)),
            Err(error) => Some((Err(agent_failure(error)), None)),
        }
    })
    .boxed()
}
