//! Accepts the body of a request, with a bound on its length and on the time it takes.

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use thiserror::Error;
use tokio::time::timeout;

use crate::settings::BODY_DEADLINE;

#[derive(Debug, Error)]
pub(crate) enum BodyError {
    #[error("timed out waiting for the body")]
    TimedOut,
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    #[error("the body cannot be read: {0}")]
    Broken(#[from] hyper::Error),
}

/// A body that is known to be longer than `max` is refused before it is read.
pub(crate) async fn read(body: Incoming, max: usize) -> Result<Vec<u8>, BodyError> {
    if body.size_hint().lower() > max as u64 {
        return Err(BodyError::TooLarge(max));
    }
    timeout(BODY_DEADLINE, gather(body, max)).await.map_err(|_| BodyError::TimedOut)?
}

async fn gather(mut body: Incoming, max: usize) -> Result<Vec<u8>, BodyError> {
    // The buffer grows with received bytes, not with the announced length, and is one piece: a body of tiny chunks must
    // not cost a multiple of its length.
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        // Trailers are ignored.
        let Ok(data) = frame?.into_data() else { continue };
        if data.len() > max - whole.len() {
            return Err(BodyError::TooLarge(max));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}
