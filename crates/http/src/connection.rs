//! One connection: request after request, until either side has had enough.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

use crate::backend::Backend;
use crate::eras;
use crate::front::Front;
use crate::guard::{self, Hosts, Wish};
use crate::head::{Framing, Head};
use crate::incoming::{Incoming, ReadError};
use crate::outgoing::{Answer, Outgoing, Status};
use crate::post::{self, Reads, Reply};
use crate::refusal::{Refusal, code};
use crate::settings::{PATIENCE, SIGN_OF_LIFE};
use crate::upstream::{Call, News};

struct Connection<'a, B, S> {
    front: &'a Front<B>,
    hosts: &'a Hosts,
    incoming: Incoming<ReadHalf<S>>,
    outgoing: Outgoing<WriteHalf<S>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Request,
    /// The client has heard everything.
    End,
    /// The client may still be sending, and must be able to hear why it was refused.
    Refused,
}

impl<B: Backend> Front<B> {
    /// Serves one connection to its end. Dropped, what it has under way is cancelled.
    pub async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin>(&self, stream: S, hosts: &Hosts) {
        let (read, write) = tokio::io::split(stream);
        let (incoming, outgoing) = (Incoming::new(read), Outgoing::new(write));
        let mut connection = Connection { front: self, hosts, incoming, outgoing };
        let Ok(_seat) = self.connections.try_acquire() else {
            let limit = self.settings.max_connections;
            let refusal = Refusal::busy(format!("{limit} connections are open, which is the limit"));
            let _ = connection.outgoing.answer(&refusal.into_answer(), false).await;
            return connection.outgoing.end().await;
        };
        let ended = loop {
            match connection.turn().await {
                Ok(Next::Request) => {}
                Ok(ended) => break Ok(ended),
                Err(error) => break Err(error),
            }
        };
        match ended {
            Ok(Next::Refused) => {
                connection.outgoing.end().await;
                connection.incoming.linger().await;
            }
            Ok(Next::Request | Next::End) => connection.outgoing.end().await,
            Err(error) => tracing::debug!(%error, "a connection over HTTP broke"),
        }
    }
}

impl<B: Backend, S: AsyncRead + AsyncWrite + Send + Unpin> Connection<'_, B, S> {
    /// One request. The error is one of the connection.
    async fn turn(&mut self) -> io::Result<Next> {
        let head = tokio::select! {
            biased;
            head = self.incoming.head() => head,
            () = self.front.closing.cancelled() => return Ok(Next::End),
        };
        let head = match head {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(Next::End),
            Err(error) => return self.unread(&error).await,
        };
        let keep_alive = head.keep_alive && !self.front.closing.is_cancelled();
        let wish = match guard::admit(&head, self.hosts, &self.front.backend) {
            Ok(wish) => wish,
            Err(refusal) => return self.refuse(refusal).await,
        };
        let answered = match wish {
            Wish::Delete if head.framing != Framing::Length(0) => {
                let words = "DELETE has no body";
                let refusal = Refusal::new(Status::BAD_REQUEST, code::INVALID_REQUEST, words);
                return self.refuse(refusal).await;
            }
            Wish::Delete => self.front.delete(&head),
            Wish::Post => return self.post(&head, keep_alive).await,
        };
        self.finish(&answered.unwrap_or_else(Refusal::into_answer), keep_alive).await
    }

    async fn post(&mut self, head: &Head, keep_alive: bool) -> io::Result<Next> {
        let reads = match post::check_type(head).and_then(|()| Reads::of(head)) {
            Ok(reads) => reads,
            Err(refusal) => return self.refuse(refusal).await,
        };
        // Held until the answer is out.
        let Ok(_turn) = self.front.requests.try_acquire() else {
            let limit = self.front.settings.max_requests;
            let refusal = Refusal::busy(format!("{limit} requests are under way, which is the limit"));
            return self.refuse(refusal).await;
        };
        let max_body = self.front.settings.max_body;
        if head.expects_continue && head.framing.may_fit(max_body) {
            self.outgoing.go_on().await?;
        }
        let body = match self.incoming.body(head.framing, max_body).await {
            Ok(body) => body,
            Err(error) => return self.unread(&error).await,
        };
        let replied = tokio::select! {
            biased;
            replied = self.front.post(head, &body) => replied,
            () = self.incoming.hung_up() => return Ok(Next::End),
        };
        // A body may be large, and a call may be long.
        drop(body);
        match replied {
            Ok(Reply::Now(answer)) => self.finish(&answer, keep_alive).await,
            Ok(Reply::Later { call, lone }) => self.follow(call, lone, reads, head, keep_alive).await,
            Err(refusal) => self.finish(&refusal.into_answer(), keep_alive).await,
        }
    }

    /// Waits for a call. What is answered soon is one answer; what takes longer, or reports on its way, is a stream.
    async fn follow(
        &mut self,
        mut call: Call,
        lone: bool,
        reads: Reads,
        head: &Head,
        keep_alive: bool,
    ) -> io::Result<Next> {
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
                    news = call.next() => news,
                    () = self.incoming.hung_up() => return Ok(Next::End),
                    () = &mut patience => break,
                };
                match news {
                    News::Answer(answer) => {
                        let status = if lone { eras::status(&answer) } else { Status::OK };
                        return self.finish(&Answer::json(status, &answer), keep_alive).await;
                    }
                    News::Gone => return self.finish(&post::gone(None).into_answer(), keep_alive).await,
                    News::Report(report) if reads.events => {
                        first = Some(report);
                        break;
                    }
                    News::Report(_) => {}
                }
            }
        }
        let keep_alive = keep_alive && head.knows_chunks;
        let mut events = self.outgoing.begin_events(head.knows_chunks, keep_alive).await?;
        if let Some(report) = first {
            events.message(&report).await?;
        }
        loop {
            tokio::select! {
                biased;
                news = call.next() => match news {
                    News::Report(report) => events.message(&report).await?,
                    News::Answer(answer) => {
                        events.message(&answer).await?;
                        events.end().await?;
                        return Ok(if keep_alive { Next::Request } else { Next::End });
                    }
                    // Cut off in the middle: a stream that ends without an answer must not look whole.
                    News::Gone => return Err(io::ErrorKind::ConnectionAborted.into()),
                },
                () = self.incoming.hung_up() => return Ok(Next::End),
                () = tokio::time::sleep(SIGN_OF_LIFE) => events.sign_of_life().await?,
            }
        }
    }

    async fn finish(&mut self, answer: &Answer, keep_alive: bool) -> io::Result<Next> {
        self.outgoing.answer(answer, keep_alive).await?;
        Ok(if keep_alive { Next::Request } else { Next::End })
    }

    /// Refuses a request whose body was not read, so nothing can follow it.
    async fn refuse(&mut self, refusal: Refusal) -> io::Result<Next> {
        self.outgoing.answer(&refusal.into_answer(), false).await?;
        Ok(Next::Refused)
    }

    async fn unread(&mut self, error: &ReadError) -> io::Result<Next> {
        match Refusal::unread(error) {
            Some(refusal) => self.refuse(refusal).await,
            None => Ok(Next::End),
        }
    }
}
