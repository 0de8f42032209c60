//! One conversation with the MCP server, shared by the requests that belong to it.
//!
//! Requests get numbers of our own on the way in and their ids back on the way out: two clients that know nothing of each
//! other may use the same id. The same holds for the tokens of progress reports, by which those find their request.

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

use crate::refusal::code;

/// Reports that may wait for a client that reads slowly; more are lost, the answer never is.
const REPORTS: usize = 16;

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
    /// Without a bound of its own: there are no more lines than requests under way, and those are counted.
    lines: mpsc::UnboundedSender<Vec<u8>>,
}

#[derive(Debug)]
struct State {
    next: u64,
    waiting: HashMap<u64, Waiting>,
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
        let state = State { next: 0, waiting: HashMap::new(), used: Instant::now(), is_gone: false };
        let calls = Arc::new(Calls { state: Mutex::new(state), lines });
        let task = tokio::spawn(carry(stream, queue, calls.clone(), idle));
        Self { calls, _task: AbortOnDropHandle::new(task) }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.calls.state().is_gone
    }

    /// Passes a request on.
    pub(crate) fn call(self: &Arc<Self>, mut request: Value) -> Result<Call, Gone> {
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
        state.waiting.insert(number, Waiting { id, token, reports, answer });
        state.used = Instant::now();
        drop(state);
        self.calls.send(&request);
        Ok(Call { number, reports: reported, answer: answered, upstream: self.clone() })
    }

    /// Passes on what needs no answer.
    pub(crate) fn notify(&self, mut notification: Value) {
        if notification["method"] == "notifications/cancelled" {
            for (number, waiting) in self.calls.withdraw(&notification["params"]["requestId"]) {
                notification["params"]["requestId"] = number.into();
                self.calls.send(&notification);
                // The server does not answer it any more, and its connection waits.
                let error = json!({ "code": code::REFUSED, "message": "the request was cancelled" });
                let answer = json!({ "jsonrpc": "2.0", "id": waiting.id, "error": error });
                let _ = waiting.answer.send(answer);
            }
            return;
        }
        self.calls.state().used = Instant::now();
        self.calls.send(&notification);
    }
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one insert, remove or assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: &Value) {
        // If the conversation has ended, whoever waits is told by that.
        let _ = self.lines.send(format!("{message}\n").into_bytes());
    }

    /// Takes out the requests of this id that are under way, with their numbers.
    fn withdraw(&self, id: &Value) -> Vec<(u64, Waiting)> {
        self.state().waiting.extract_if(|_, waiting| waiting.id == *id).collect()
    }

    /// Nobody waits for this answer any more: the server need not go on.
    fn abandon(&self, number: u64) {
        if self.state().waiting.remove(&number).is_some() {
            let params = json!({ "requestId": number, "reason": "the client hung up" });
            self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
        }
    }

    /// Gives what the server said to whoever waits for it.
    fn deliver(&self, mut message: Value) {
        if message["method"] == "notifications/progress" {
            let state = self.state();
            let number = message["params"]["progressToken"].as_u64();
            let waiting = number.and_then(|number| state.waiting.get(&number));
            if let Some(Waiting { token: Some(token), reports, .. }) = waiting {
                message["params"]["progressToken"] = token.clone();
                let _ = reports.try_send(message);
            }
            return;
        }
        let mut state = self.state();
        state.used = Instant::now();
        let waiting = message["id"].as_u64().and_then(|number| state.waiting.remove(&number));
        if let Some(Waiting { id, answer, .. }) = waiting {
            message["id"] = id;
            // A client that has just gone needs none.
            let _ = answer.send(message);
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.is_gone = true;
        state.waiting.clear();
    }

    /// Resolves when nothing was asked for so long.
    async fn silent_for(&self, idle: Duration) {
        loop {
            let until = {
                let state = self.state();
                if state.waiting.is_empty() { state.used + idle } else { Instant::now() + idle }
            };
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

async fn carry(
    stream: UnixStream,
    queue: mpsc::UnboundedReceiver<Vec<u8>>,
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

async fn write_lines(mut write: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = queue.recv().await {
        if write.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// A request under way. Dropped before its answer, it is cancelled.
#[derive(Debug)]
pub(crate) struct Call {
    number: u64,
    reports: mpsc::Receiver<Value>,
    answer: oneshot::Receiver<Value>,
    upstream: Arc<Upstream>,
}

#[derive(Debug)]
pub(crate) enum News {
    Report(Value),
    Answer(Value),
    /// The conversation ended before the answer.
    Gone,
}

impl Call {
    /// All reports, then the answer. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> News {
        tokio::select! {
            biased;
            Some(report) = self.reports.recv() => News::Report(report),
            answer = &mut self.answer => answer.map_or(News::Gone, News::Answer),
        }
    }

    /// The answer alone.
    pub(crate) async fn answered(mut self) -> Result<Value, Gone> {
        loop {
            match self.next().await {
                News::Report(_) => {}
                News::Answer(answer) => return Ok(answer),
                News::Gone => return Err(Gone),
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.upstream.calls.abandon(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(idle: Option<Duration>) -> (Arc<Upstream>, BufReader<UnixStream>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(Upstream::new(ours, idle)), BufReader::new(theirs))
    }

    async fn line(server: &mut BufReader<UnixStream>) -> Value {
        let mut line = String::new();
        server.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn say(server: &mut BufReader<UnixStream>, message: Value) {
        server.get_mut().write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn two_requests_of_one_id_get_their_own_answers_and_reports() {
        let (upstream, mut server) = pair(None);
        let request = json!({"id": "a", "method": "x", "params": {"_meta": {"progressToken": "t"}}});
        let mut first = upstream.call(request.clone()).unwrap();
        let second = upstream.call(request).unwrap();
        let (one, two) = (line(&mut server).await, line(&mut server).await);
        assert_ne!(one["id"], two["id"]);
        let token = &one["params"]["_meta"]["progressToken"];
        say(&mut server, json!({"id": two["id"], "result": 2})).await;
        say(&mut server, json!({"method": "notifications/progress", "params": {"progressToken": token}}))
            .await;
        say(&mut server, json!({"id": one["id"], "result": 1})).await;
        assert_eq!(second.answered().await, Ok(json!({"id": "a", "result": 2})));
        assert!(matches!(first.next().await, News::Report(r) if r["params"]["progressToken"] == "t"));
        assert!(matches!(first.next().await, News::Answer(a) if a == json!({"id": "a", "result": 1})));
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_is_cancelled_and_one_that_was_answered_is_not() {
        let (upstream, mut server) = pair(None);
        let call = upstream.call(json!({"id": 7, "method": "x"})).unwrap();
        let number = line(&mut server).await["id"].clone();
        say(&mut server, json!({"id": number, "result": 1})).await;
        call.answered().await.unwrap();
        drop(upstream.call(json!({"id": 8, "method": "y"})).unwrap());
        assert_eq!(line(&mut server).await["method"], "y");
        let cancelled = line(&mut server).await;
        assert_eq!(cancelled["params"]["requestId"], 2, "{cancelled}");
    }

    #[tokio::test]
    async fn a_client_cancels_by_its_own_id() {
        let (upstream, mut server) = pair(None);
        let call = upstream.call(json!({"id": "mine", "method": "x"})).unwrap();
        line(&mut server).await;
        upstream.notify(json!({"method": "notifications/cancelled", "params": {"requestId": "other"}}));
        upstream.notify(json!({"method": "notifications/cancelled", "params": {"requestId": "mine"}}));
        assert_eq!(line(&mut server).await["params"]["requestId"], 1);
        assert_eq!(call.answered().await.unwrap()["error"]["message"], "the request was cancelled");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_but_not_while_something_is_under_way() {
        let (upstream, mut server) = pair(Some(Duration::from_secs(10)));
        let call = upstream.call(json!({"id": 1, "method": "x"})).unwrap();
        let number = line(&mut server).await["id"].clone();
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(!upstream.is_gone());
        say(&mut server, json!({"id": number, "result": 1})).await;
        call.answered().await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(upstream.is_gone());
        assert_eq!(upstream.call(json!({"id": 1, "method": "x"})).err(), Some(Gone));
    }

    #[tokio::test]
    async fn whoever_waits_learns_that_the_server_has_gone() {
        let (upstream, mut server) = pair(None);
        let call = upstream.call(json!({"id": 1, "method": "x"})).unwrap();
        line(&mut server).await;
        drop(server);
        assert_eq!(call.answered().await, Err(Gone));
    }
}
