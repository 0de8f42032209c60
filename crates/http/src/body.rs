//! The body of a request, of bounded length and in bounded time.

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use thiserror::Error;
use tokio::time::timeout;

use crate::settings::BODY_DEADLINE;

#[derive(Debug, Error)]
pub(crate) enum BodyError {
    #[error("the body did not come in time")]
    TimedOut,
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    #[error("the body cannot be read: {0}")]
    Broken(#[from] hyper::Error),
}

/// What is known to be longer than `max` is refused before it is read.
pub(crate) async fn read(body: Incoming, max: usize) -> Result<Vec<u8>, BodyError> {
    if body.size_hint().lower() > max as u64 {
        return Err(BodyError::TooLarge(max));
    }
    timeout(BODY_DEADLINE, gather(body, max)).await.map_err(|_| BodyError::TimedOut)?
}

async fn gather(mut body: Incoming, max: usize) -> Result<Vec<u8>, BodyError> {
    // Grown by what has come and not by what was promised, in one piece: a body of tiny chunks must not cost a
    // multiple of its length.
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        // Trailers say nothing to us.
        let Ok(data) = frame?.into_data() else { continue };
        if data.len() > max - whole.len() {
            return Err(BodyError::TooLarge(max));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}
