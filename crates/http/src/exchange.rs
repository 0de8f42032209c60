//! Answers one HTTP request.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use futures::{Stream, stream};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::answer::{self, Answer, Interrupted};
use crate::backend::Backend;
use crate::body::{self, BodyError};
use crate::eras;
use crate::front::Front;
use crate::guard::{self, Action, Hosts};
use crate::head::Head;
use crate::post::{self, Accepts, Reply};
use crate::refusal::Refusal;
use crate::settings::{KEEP_ALIVE, SPARE_BODY, STREAM_AFTER};
use crate::upstream::{Call, CallEvent};

impl<B: Backend> Front<B> {
    pub(crate) async fn answer(&self, request: Request<Incoming>, hosts: &Hosts) -> Answer {
        self.respond(request, hosts).await.unwrap_or_else(Refusal::into_answer)
    }

    async fn respond(&self, request: Request<Incoming>, hosts: &Hosts) -> Result<Answer, Refusal> {
        let (parts, body) = request.into_parts();
        let head = Head::of(parts)?;
        match guard::admit(&head, hosts, &self.backend)? {
            Action::Delete => self.delete(&head),
            Action::Listen => self.listen(&head),
            Action::Post => {
                post::check_type(&head)?;
                let accepts = Accepts::of(&head)?;
                let permit = self.permits.take().or_else(|| self.permits.take_spare());
                let permit = permit.ok_or_else(|| self.busy())?;
                let body = match permit.is_spare() {
                    false => body::read(body, self.settings.max_body).await?,
                    true => self.read_spare(body).await?,
                };
                let reply = self.post(&head, &body, permit).await?;
                // A body may be large, and a call may take long.
                drop(body);
                match reply {
                    Reply::Now(answer) => Ok(answer),
                    Reply::Later { call, stateless } => {
                        follow(call, stateless, accepts, self.closing.clone()).await
                    }
                }
            }
        }
    }

    /// Accepts the body of a message for which only a spare permit is left. A long body cannot be such a message.
    async fn read_spare(&self, body: Incoming) -> Result<Vec<u8>, Refusal> {
        let max = self.settings.max_body.min(SPARE_BODY);
        body::read(body, max).await.map_err(|error| match error {
            BodyError::TooLarge(_) => self.busy(),
            BodyError::TimedOut | BodyError::Broken(_) => error.into(),
        })
    }

    pub(crate) fn busy(&self) -> Refusal {
        Refusal::busy(format!("too many requests in progress: the limit is {}", self.settings.max_requests))
    }

    /// Streams notifications that belong to no request, until the session or the server ends.
    fn listen(&self, head: &Head) -> Result<Answer, Refusal> {
        Accepts::of(head)?.need_events()?;
        let heard = self.session(head)?.upstream.listen();
        let closing = self.closing.clone();
        Ok(answer::events(stream::unfold((heard, closing), |(mut heard, closing)| async move {
            let event = tokio::select! {
                biased;
                said = heard.next() => answer::event(&said?),
                () = closing.cancelled() => return None,
                () = tokio::time::sleep(KEEP_ALIVE) => answer::keep_alive_comment(),
            };
            Some((Ok(event), (heard, closing)))
        })))
    }
}

/// Waits for a call. A call that is answered soon gets one JSON answer; one that takes longer or reports progress gets
/// a stream.
async fn follow(
    mut call: Call,
    stateless: bool,
    accepts: Accepts,
    closing: CancellationToken,
) -> Result<Answer, Refusal> {
    let mut first = None;
    if accepts.json {
        // A client that reads no events has to wait without keep-alives.
        let patience = async {
            match accepts.events {
                true => tokio::time::sleep(STREAM_AFTER).await,
                false => std::future::pending().await,
            }
        };
        tokio::pin!(patience);
        loop {
            let event = tokio::select! {
                biased;
                event = next_event(&mut call, &closing) => event,
                () = &mut patience => break,
            };
            match event {
                CallEvent::Answer(answer) => {
                    let status = if stateless { eras::status(&answer) } else { StatusCode::OK };
                    return Ok(answer::json(status, &answer));
                }
                CallEvent::Gone => return Err(post::gone(None)),
                CallEvent::Report(report) if accepts.events => {
                    first = Some(report);
                    break;
                }
                CallEvent::Report(_) => {}
            }
        }
    }
    Ok(answer::events(events(first, call, closing)))
}

/// The next event of a call. While the front closes, calls may come to their end, except one that has no end of its
/// own.
async fn next_event(call: &mut Call, closing: &CancellationToken) -> CallEvent {
    let lasts = call.lasts;
    tokio::select! {
        biased;
        event = call.next() => event,
        () = closing.cancelled(), if lasts => CallEvent::Gone,
    }
}

/// Streams the reports of a call, beginning with `first`, and its answer.
fn events(
    first: Option<Value>,
    call: Call,
    closing: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Interrupted>> + Send + 'static {
    stream::unfold(Some((first, call, closing)), |state| async move {
        let (first, mut call, closing) = state?;
        if let Some(report) = first {
            return Some((Ok(answer::event(&report)), Some((None, call, closing))));
        }
        let event = tokio::select! {
            biased;
            event = next_event(&mut call, &closing) => match event {
                CallEvent::Report(report) => answer::event(&report),
                CallEvent::Answer(answer) => return Some((Ok(answer::event(&answer)), None)),
                CallEvent::Gone => return Some((Err(Interrupted), None)),
            },
            () = tokio::time::sleep(KEEP_ALIVE) => answer::keep_alive_comment(),
        };
        Some((Ok(event), Some((None, call, closing))))
    })
}
