//! Cancellation of every tool: each call is sent and cancelled at a random moment before it would have ended.
//! Afterwards it is either done or undone, and everything can be used as before.
//!
//! ```text
//!   before ─▶ call ──random time──▶ cancel, or hang up ─▶ after: whole or not at all ─▶ all is well
//! ```
//!
//! The moments come from a seed that a failed test prints; `AGENTISO_SEED` repeats them.

mod deeds;
mod files;
mod stage;
mod vms;

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{Pending, RpcReply, host_or_skip};
use deeds::{Operation, large, small};
use serde_json::{Value, json};
use stage::Stage;

/// A small random number generator whose numbers can be repeated.
struct Moments(u64);

impl Moments {
    #[expect(clippy::print_stderr, reason = "the seed of a failed test belongs in its output")]
    fn begin() -> Self {
        let given = std::env::var("AGENTISO_SEED").ok().and_then(|seed| seed.parse().ok());
        let now =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
        let seed = given.unwrap_or(now) | 1;
        eprintln!("AGENTISO_SEED={seed}");
        Self(seed)
    }

    /// A random time between zero and a little more than `whole`.
    fn within(&mut self, whole: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        whole.mul_f64((self.0 >> 11) as f64 / (1_u64 << 53) as f64 * 1.1)
    }
}

#[expect(clippy::print_stderr, reason = "what a failed test was doing belongs in its output")]
fn tell(operation: &Operation, what: &str) {
    eprintln!("{}: {what}", operation.what);
}

fn call(stage: &Stage, operation: &Operation) -> Pending {
    stage.client.start_tool(operation.tool, operation.arguments(stage))
}

/// Runs the operation without cancelling it and returns its duration.
fn run_uncancelled(stage: &Stage, operation: &Operation) -> Duration {
    (operation.before)(stage);
    let begun = Instant::now();
    let done = call(stage, operation).tool();
    let took = begun.elapsed();
    assert!(!done.is_error, "{}: {}", operation.what, done.text);
    (operation.after)(stage, true);
    stage.all_is_well();
    tell(operation, &format!("left alone it takes {took:?}"));
    took
}

/// Whether the call was answered in spite of the cancellation. An answer must be a success.
fn is_answered(operation: &Operation, pending: &Pending) -> bool {
    match pending.wait_for(Duration::ZERO) {
        Some(RpcReply::Result(result)) => {
            assert_ne!(result["isError"], json!(true), "{}: {result}", operation.what);
            true
        }
        Some(RpcReply::Error { .. }) | None => false,
    }
}

/// Runs each operation once to its end, and then cancels it at random moments.
fn cancel(deeds: &[Operation]) {
    let internet = internet_or_skip!();
    let notes = stage::notes();
    let host = host_or_skip!(Stage::options(&internet, &notes));
    let stage = Stage::set(host, internet, notes);
    let mut moments = Moments::begin();
    for operation in deeds {
        let whole = run_uncancelled(&stage, operation);
        for _ in 0..operation.rounds {
            (operation.before)(&stage);
            let moment = moments.within(whole);
            let pending = call(&stage, operation);
            std::thread::park_timeout(moment);
            stage.client.cancel(&pending);
            // Answers arrive in order: after this one, the answer to the call has come, if there is one.
            stage.listed();
            let answered = is_answered(operation, &pending);
            tell(operation, &format!("cancelled after {moment:?}, answered: {answered}"));
            (operation.after)(&stage, answered);
            stage.all_is_well();
        }
    }
    stage.end();
}

#[test]
fn cancelled_small_calls_are_done_or_undone() {
    cancel(&small());
}

#[test]
fn cancelled_large_calls_are_done_or_undone() {
    cancel(&large());
}

#[test]
fn every_tool_is_tried_with_cancellation() {
    let host = host_or_skip!();
    let tools = host.client().request("tools/list", json!({})).result();
    let name = |tool: &Value| tool["name"].as_str().expect("a name").to_owned();
    let tools: BTreeSet<_> = tools["tools"].as_array().expect("tools").iter().map(name).collect();
    let tried: BTreeSet<_> =
        small().iter().chain(&large()).map(|operation| operation.tool.to_owned()).collect();
    assert_eq!(tools, tried);
}

#[test]
fn disconnect_during_slow_calls_leaves_nothing_half_done() {
    let internet = internet_or_skip!();
    let notes = stage::notes();
    let host = host_or_skip!(Stage::options(&internet, &notes));
    let mut stage = Stage::set(host, internet, notes);
    let mut moments = Moments::begin();
    let deeds: Vec<_> = small().into_iter().chain(large()).collect();
    for (number, operation) in deeds.iter().filter(|operation| operation.usually.is_some()).enumerate() {
        (operation.before)(&stage);
        let moment = moments.within(operation.usually.unwrap_or_default());
        let pending = call(&stage, operation);
        std::thread::park_timeout(moment);
        // Closes the connection and kills the client in turns.
        if number % 2 == 0 {
            stage.client.hang_up();
        } else {
            stage.client.kill();
        }
        let answered = is_answered(operation, &pending);
        tell(operation, &format!("hung up after {moment:?}, answered: {answered}"));
        stage.next_client();
        (operation.after)(&stage, answered);
        stage.all_is_well();
    }
    stage.end();
}
