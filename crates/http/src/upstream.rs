//! One connection to the MCP server, shared by the requests that belong to it.
//!
//! Requests get numbers of our own on the way to the server and their ids back on the way to the client: two clients
//! that know nothing of each other may use the same id. Tokens of progress reports are replaced in the same way, so
//! that a report finds its request.

mod call;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use call::{Call, CallEvent, Listening};

use crate::permits::Permit;
use crate::refusal::code;

/// Reports that may wait for a client that reads slowly; further reports are dropped, the answer never is. As many as
/// the resources that one client may follow.
const REPORTS: usize = 64;

/// The key under which a message names the subscription request it belongs to.
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// The request whose answer is a stream without an end.
const SUBSCRIBING: &str = "subscriptions/listen";

/// Longest id or token of a subscription that gives its permit back: these stay in memory, and real ones are shorter.
const MAX_KEPT: usize = 1024;

/// Bytes that are read from the server at once.
const READ_SIZE: usize = 64 * 1024;

/// Dropping it ends the connection and everything in progress on it.
#[derive(Debug)]
pub(crate) struct Upstream {
    calls: Arc<Calls>,
    _task: AbortOnDropHandle<()>,
}

/// The server has closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

#[derive(Debug)]
struct Calls {
    state: Mutex<State>,
    /// Unbounded: each line holds the permit of its request until it is written, and permits are limited.
    lines: mpsc::UnboundedSender<Line>,
}

#[derive(Debug)]
struct Line {
    bytes: Vec<u8>,
    /// `None` for the cancellation of a call that holds no permit; there are no more of these than connections.
    _permit: Option<Permit>,
}

#[derive(Debug)]
struct State {
    next: u64,
    waiting: HashMap<u64, Waiting>,
    /// Streams for notifications without a request, the newest last.
    listening: Vec<mpsc::Sender<Value>>,
    used: Instant,
    is_gone: bool,
}

#[derive(Debug)]
struct Waiting {
    id: Value,
    token: Option<Value>,
    reports: mpsc::Sender<Value>,
    answer: oneshot::Sender<Value>,
}

impl Upstream {
    /// Takes over a new connection. With `idle`, it ends after that time without any request.
    pub(crate) fn new(stream: UnixStream, idle: Option<Duration>) -> Self {
        let (lines, queue) = mpsc::unbounded_channel();
        let state = State {
            next: 0,
            waiting: HashMap::new(),
            listening: Vec::new(),
            used: Instant::now(),
            is_gone: false,
        };
        let calls = Arc::new(Calls { state: Mutex::new(state), lines });
        let task = tokio::spawn(carry(stream, queue, calls.clone(), idle));
        Self { calls, _task: AbortOnDropHandle::new(task) }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.calls.state().is_gone
    }

    /// Passes a request on to the server.
    pub(crate) fn call(self: &Arc<Self>, mut request: Value, permit: Permit) -> Result<Call, Gone> {
        let (reports, reported) = mpsc::channel(REPORTS);
        let (answer, answered) = oneshot::channel();
        let mut state = self.calls.state();
        if state.is_gone {
            return Err(Gone);
        }
        state.next += 1;
        let number = state.next;
        let id = std::mem::replace(&mut request["id"], number.into());
        let token = request.pointer_mut("/params/_meta/progressToken").filter(|token| !token.is_null());
        let token = token.map(|token| std::mem::replace(token, number.into()));
        let lasts = request["method"] == SUBSCRIBING;
        let is_small = is_small(&id) && token.as_ref().is_none_or(is_small);
        state.waiting.insert(number, Waiting { id, token, reports, answer });
        state.used = Instant::now();
        drop(state);
        self.calls.send(&request, Some(permit.clone()));
        // A client that only listens must not use up permits. Connections are limited as well.
        let permit = if lasts && is_small { None } else { Some(permit) };
        Ok(Call { number, lasts, permit, reports: reported, answer: answered, upstream: self.clone() })
    }

    /// Receives notifications that belong to no request, until the connection ends. Of several listeners only the
    /// newest gets them.
    pub(crate) fn listen(&self) -> Listening {
        let (said, heard) = mpsc::channel(REPORTS);
        let mut state = self.calls.state();
        state.listening.retain(|listener| !listener.is_closed());
        if !state.is_gone {
            state.listening.push(said);
        }
        Listening { heard, calls: Arc::downgrade(&self.calls) }
    }

    /// Passes on a message that needs no answer.
    pub(crate) fn notify(&self, notification: Value, permit: Permit) {
        if notification["method"] == "notifications/cancelled" {
            for (number, waiting) in self.calls.withdraw(&notification["params"]["requestId"]) {
                self.calls.send(&cancelled(number, "the client cancelled it"), Some(permit.clone()));
                // The server will not answer it any more, but its connection still waits.
                let error = json!({ "code": code::REFUSED, "message": "the request was cancelled" });
                let answer = json!({ "jsonrpc": "2.0", "id": waiting.id, "error": error });
                let _ = waiting.answer.send(answer);
            }
            return;
        }
        self.calls.state().used = Instant::now();
        self.calls.send(&notification, Some(permit));
    }
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one insert, remove or assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: &Value, permit: Option<Permit>) {
        // If the connection has ended, waiting calls learn of it by that.
        let _ = self.lines.send(Line { bytes: format!("{message}\n").into_bytes(), _permit: permit });
    }

    /// Removes the requests in progress that have this id, and returns them with their numbers.
    fn withdraw(&self, id: &Value) -> Vec<(u64, Waiting)> {
        self.state().waiting.extract_if(|_, waiting| waiting.id == *id).collect()
    }

    /// Cancels a request whose client has gone.
    fn abandon(&self, number: u64, permit: Option<Permit>) {
        if self.state().waiting.remove(&number).is_some() {
            self.send(&cancelled(number, "the client hung up"), permit);
        }
    }

    /// Passes a message of the server to the call that waits for it.
    fn deliver(&self, mut message: Value) {
        let mut state = self.state();
        if message.get("method").is_some() {
            return state.route_notification(message);
        }
        state.used = Instant::now();
        let waiting = message["id"].as_u64().and_then(|number| state.waiting.remove(&number));
        if let Some(Waiting { id, answer, .. }) = waiting {
            if let Some(subscription) = message.get_mut("result").and_then(subscription) {
                *subscription = id.clone();
            }
            message["id"] = id;
            // The client may have gone meanwhile.
            let _ = answer.send(message);
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.is_gone = true;
        state.waiting.clear();
        state.listening.clear();
    }

    /// Returns after `idle` time without any request.
    async fn silent_for(&self, idle: Duration) {
        loop {
            let until = {
                let state = self.state();
                if state.is_silent() { state.used + idle } else { Instant::now() + idle }
            };
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

impl State {
    /// Passes a notification to the request that it belongs to, or else to the newest listener. A client that reads too
    /// slowly misses it.
    fn route_notification(&mut self, mut message: Value) {
        if message["method"] == "notifications/progress" {
            let number = message["params"]["progressToken"].as_u64();
            let waiting = number.and_then(|number| self.waiting.get(&number));
            if let Some(Waiting { token: Some(token), reports, .. }) = waiting {
                message["params"]["progressToken"] = token.clone();
                let _ = reports.try_send(message);
            }
        } else if let Some(subscription) = message.get_mut("params").and_then(subscription) {
            let waiting = subscription.as_u64().and_then(|number| self.waiting.get(&number));
            if let Some(Waiting { id, reports, .. }) = waiting {
                *subscription = id.clone();
                let _ = reports.try_send(message);
            }
        } else {
            self.listening.retain(|listener| !listener.is_closed());
            if let Some(listener) = self.listening.last() {
                let _ = listener.try_send(message);
            }
        }
    }

    /// Whether nothing is in progress and no client listens.
    fn is_silent(&self) -> bool {
        self.waiting.is_empty() && self.listening.iter().all(mpsc::Sender::is_closed)
    }
}

fn is_small(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= MAX_KEPT,
        Value::Array(_) | Value::Object(_) => false,
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Uses our reason and not the client's: one cancellation may end many requests of one id, and a client's reason may be
/// long.
fn cancelled(number: u64, reason: &str) -> Value {
    let params = json!({ "requestId": number, "reason": reason });
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })
}

fn subscription(params: &mut Value) -> Option<&mut Value> {
    params.get_mut("_meta")?.get_mut(SUBSCRIPTION_KEY)
}

async fn carry(
    stream: UnixStream,
    queue: mpsc::UnboundedReceiver<Line>,
    calls: Arc<Calls>,
    idle: Option<Duration>,
) {
    let (read, write) = stream.into_split();
    let silent = async {
        match idle {
            Some(idle) => calls.silent_for(idle).await,
            None => std::future::pending().await,
        }
    };
    // Reading comes first: an answer that has arrived is delivered.
    tokio::select! {
        biased;
        () = read_lines(read, &calls) => {}
        () = write_lines(write, queue) => {}
        () = silent => tracing::info!("an HTTP session was idle for too long and ended"),
    }
    calls.close();
}

async fn read_lines(read: OwnedReadHalf, calls: &Calls) {
    let mut read = BufReader::with_capacity(READ_SIZE, read);
    loop {
        // A new buffer each time: one long answer must not hold memory until the end of the session.
        let mut line = Vec::new();
        if !matches!(read.read_until(b'\n', &mut line).await, Ok(1..)) {
            return;
        }
        match serde_json::from_slice(&line) {
            Ok(message) => calls.deliver(message),
            Err(error) => tracing::error!(%error, "the MCP server sent a line that is not JSON"),
        }
    }
}

async fn write_lines(mut write: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Line>) {
    while let Some(line) = queue.recv().await {
        if write.write_all(&line.bytes).await.is_err() {
            return;
        }
    }
}
