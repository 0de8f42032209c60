//! One request and its answer.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use futures::{Stream, stream};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::answer::{self, Answer, Cut};
use crate::backend::Backend;
use crate::body::{self, BodyError};
use crate::eras;
use crate::front::Front;
use crate::guard::{self, Hosts, Wish};
use crate::head::Head;
use crate::post::{self, Reads, Reply};
use crate::refusal::Refusal;
use crate::settings::{PATIENCE, SIGN_OF_LIFE, SPARE_BODY};
use crate::upstream::{Call, News};

impl<B: Backend> Front<B> {
    pub(crate) async fn answer(&self, request: Request<Incoming>, hosts: &Hosts) -> Answer {
        self.respond(request, hosts).await.unwrap_or_else(Refusal::into_answer)
    }

    async fn respond(&self, request: Request<Incoming>, hosts: &Hosts) -> Result<Answer, Refusal> {
        let (parts, body) = request.into_parts();
        let head = Head::of(parts)?;
        match guard::admit(&head, hosts, &self.backend)? {
            Wish::Delete => self.delete(&head),
            Wish::Listen => self.listen(&head),
            Wish::Post => {
                post::check_type(&head)?;
                let reads = Reads::of(&head)?;
                let turn = self.turns.take().or_else(|| self.turns.take_spare());
                let turn = turn.ok_or_else(|| self.busy())?;
                let body = match turn.is_spare() {
                    false => body::read(body, self.settings.max_body).await?,
                    true => self.read_spare(body).await?,
                };
                let reply = self.post(&head, &body, turn).await?;
                // A body may be large, and a call may be long.
                drop(body);
                match reply {
                    Reply::Now(answer) => Ok(answer),
                    Reply::Later { call, lone } => follow(call, lone, reads, self.closing.clone()).await,
                }
            }
        }
    }

    /// The body of a message that comes when there is no turn for requests. What is long is none of those that may.
    async fn read_spare(&self, body: Incoming) -> Result<Vec<u8>, Refusal> {
        let max = self.settings.max_body.min(SPARE_BODY);
        body::read(body, max).await.map_err(|error| match error {
            BodyError::TooLarge(_) => self.busy(),
            BodyError::TimedOut | BodyError::Broken(_) => error.into(),
        })
    }

    pub(crate) fn busy(&self) -> Refusal {
        Refusal::busy(format!("{} requests are under way, which is the limit", self.settings.max_requests))
    }

    /// The stream of what the server says unasked, until the session or the server ends.
    fn listen(&self, head: &Head) -> Result<Answer, Refusal> {
        Reads::of(head)?.need_events()?;
        let heard = self.session(head)?.upstream.listen();
        let closing = self.closing.clone();
        Ok(answer::events(stream::unfold((heard, closing), |(mut heard, closing)| async move {
            let event = tokio::select! {
                biased;
                said = heard.next() => answer::event(&said?),
                () = closing.cancelled() => return None,
                () = tokio::time::sleep(SIGN_OF_LIFE) => answer::sign_of_life(),
            };
            Some((Ok(event), (heard, closing)))
        })))
    }
}

/// Waits for a call. What is answered soon is one answer; what takes longer, or reports on its way, is a stream.
async fn follow(
    mut call: Call,
    lone: bool,
    reads: Reads,
    closing: CancellationToken,
) -> Result<Answer, Refusal> {
    let mut first = None;
    if reads.json {
        // A client that reads no events has to wait in silence.
        let patience = async {
            match reads.events {
                true => tokio::time::sleep(PATIENCE).await,
                false => std::future::pending().await,
            }
        };
        tokio::pin!(patience);
        loop {
            let news = tokio::select! {
                biased;
                news = news(&mut call, &closing) => news,
                () = &mut patience => break,
            };
            match news {
                News::Answer(answer) => {
                    let status = if lone { eras::status(&answer) } else { StatusCode::OK };
                    return Ok(answer::json(status, &answer));
                }
                News::Gone => return Err(post::gone(None)),
                News::Report(report) if reads.events => {
                    first = Some(report);
                    break;
                }
                News::Report(_) => {}
            }
        }
    }
    Ok(answer::events(events(first, call, closing)))
}

/// What comes next for a call. Other calls may come to their end while the front closes; one that lasts has none.
async fn news(call: &mut Call, closing: &CancellationToken) -> News {
    let lasts = call.lasts;
    tokio::select! {
        biased;
        news = call.next() => news,
        () = closing.cancelled(), if lasts => News::Gone,
    }
}

/// What a call reports, beginning with this, and its answer.
fn events(
    first: Option<Value>,
    call: Call,
    closing: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Cut>> + Send + 'static {
    stream::unfold(Some((first, call, closing)), |state| async move {
        let (first, mut call, closing) = state?;
        if let Some(report) = first {
            return Some((Ok(answer::event(&report)), Some((None, call, closing))));
        }
        let event = tokio::select! {
            biased;
            news = news(&mut call, &closing) => match news {
                News::Report(report) => answer::event(&report),
                News::Answer(answer) => return Some((Ok(answer::event(&answer)), None)),
                News::Gone => return Some((Err(Cut), None)),
            },
            () = tokio::time::sleep(SIGN_OF_LIFE) => answer::sign_of_life(),
        };
        Some((Ok(event), Some((None, call, closing))))
    })
}
