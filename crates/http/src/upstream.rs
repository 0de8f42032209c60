//! One conversation with the MCP server, shared by the requests that belong to it.
//!
//! Requests get numbers of our own on the way in and their ids back on the way out: two clients that know nothing of each
//! other may use the same id. The same holds for the tokens of progress reports, by which those find their request.

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

pub(crate) use call::{Call, Listening, News};

use crate::refusal::code;
use crate::turn::Turn;

/// Reports that may wait for a client that reads slowly; more are lost, the answer never is. As many as there are
/// resources that one client follows.
const REPORTS: usize = 64;

/// Where a message says to which request for notifications it belongs.
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// The request whose answer is a stream without an end.
const SUBSCRIBING: &str = "subscriptions/listen";

/// What is kept of a request that has given its turn back: ids and tokens that somebody would really use.
const MAX_KEPT: usize = 1024;

/// How much is read at once.
const READ_SIZE: usize = 64 * 1024;

/// Dropped, the conversation ends, and everything that it has under way.
#[derive(Debug)]
pub(crate) struct Upstream {
    calls: Arc<Calls>,
    _task: AbortOnDropHandle<()>,
}

/// The server has ended the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

#[derive(Debug)]
struct Calls {
    state: Mutex<State>,
    /// Without a bound of its own: lines have the turns of their requests until they are written, and turns are counted.
    lines: mpsc::UnboundedSender<Line>,
}

#[derive(Debug)]
struct Line {
    bytes: Vec<u8>,
    /// None with the cancellation of a call that has none any more, of which there are no more than connections.
    _turn: Option<Turn>,
}

#[derive(Debug)]
struct State {
    next: u64,
    waiting: HashMap<u64, Waiting>,
    /// Streams for what is said unasked, the newest last.
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
    /// Takes over a fresh connection. With `idle`, it ends after so long without any request.
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

    /// Passes a request on.
    pub(crate) fn call(self: &Arc<Self>, mut request: Value, turn: Turn) -> Result<Call, Gone> {
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
        self.calls.send(&request, Some(turn.clone()));
        // Somebody who only listens must not keep others from asking. Connections are counted as well.
        let turn = if lasts && is_small { None } else { Some(turn) };
        Ok(Call { number, lasts, turn, reports: reported, answer: answered, upstream: self.clone() })
    }

    /// What the server says unasked, from now on and until the conversation ends. Of several listeners only the one that
    /// came last is told.
    pub(crate) fn listen(&self) -> Listening {
        let (said, heard) = mpsc::channel(REPORTS);
        let mut state = self.calls.state();
        state.listening.retain(|listener| !listener.is_closed());
        if !state.is_gone {
            state.listening.push(said);
        }
        Listening { heard, calls: Arc::downgrade(&self.calls) }
    }

    /// Passes on what needs no answer.
    pub(crate) fn notify(&self, notification: Value, turn: Turn) {
        if notification["method"] == "notifications/cancelled" {
            for (number, waiting) in self.calls.withdraw(&notification["params"]["requestId"]) {
                self.calls.send(&cancelled(number, "the client cancelled it"), Some(turn.clone()));
                // The server does not answer it any more, and its connection waits.
                let error = json!({ "code": code::REFUSED, "message": "the request was cancelled" });
                let answer = json!({ "jsonrpc": "2.0", "id": waiting.id, "error": error });
                let _ = waiting.answer.send(answer);
            }
            return;
        }
        self.calls.state().used = Instant::now();
        self.calls.send(&notification, Some(turn));
    }
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one insert, remove or assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: &Value, turn: Option<Turn>) {
        // If the conversation has ended, whoever waits is told by that.
        let _ = self.lines.send(Line { bytes: format!("{message}\n").into_bytes(), _turn: turn });
    }

    /// Takes out the requests of this id that are under way, with their numbers.
    fn withdraw(&self, id: &Value) -> Vec<(u64, Waiting)> {
        self.state().waiting.extract_if(|_, waiting| waiting.id == *id).collect()
    }

    /// Nobody waits for this answer any more: the server need not go on.
    fn abandon(&self, number: u64, turn: Option<Turn>) {
        if self.state().waiting.remove(&number).is_some() {
            self.send(&cancelled(number, "the client hung up"), turn);
        }
    }

    /// Gives what the server said to whoever waits for it.
    fn deliver(&self, mut message: Value) {
        let mut state = self.state();
        if message.get("method").is_some() {
            return state.tell(message);
        }
        state.used = Instant::now();
        let waiting = message["id"].as_u64().and_then(|number| state.waiting.remove(&number));
        if let Some(Waiting { id, answer, .. }) = waiting {
            if let Some(subscription) = message.get_mut("result").and_then(subscription) {
                *subscription = id.clone();
            }
            message["id"] = id;
            // A client that has just gone needs none.
            let _ = answer.send(message);
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.is_gone = true;
        state.waiting.clear();
        state.listening.clear();
    }

    /// Resolves when nothing was asked for so long.
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
    /// Gives a notification to the request that it belongs to, or else to whoever listens. A client that reads too
    /// slowly misses it.
    fn tell(&mut self, mut message: Value) {
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

    /// Nothing is under way, and nobody listens.
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

/// In our words and not the client's: one cancellation may end many requests of one id, and theirs may be long.
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
    // Reading comes first: an answer that is there is delivered.
    tokio::select! {
        biased;
        () = read_lines(read, &calls) => {}
        () = write_lines(write, queue) => {}
        () = silent => tracing::info!("a session over HTTP was silent for too long and ended"),
    }
    calls.close();
}

async fn read_lines(read: OwnedReadHalf, calls: &Calls) {
    let mut read = BufReader::with_capacity(READ_SIZE, read);
    loop {
        // A new one each time: one long answer must not be paid for until the end of the session.
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
