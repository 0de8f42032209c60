//! Every tool is cancelled in the middle: the call is sent, and taken back at any moment between its beginning and what
//! would have been its end. Afterwards it has happened or it has not, and everything can be used as before.
//!
//! ```text
//!   before ─▶ call ──random time──▶ cancel, or hang up ─▶ after: whole or not at all ─▶ all is well
//! ```
//!
//! The moments come from a seed that a failure shows; `AGENTISO_SEED` repeats them.

mod deeds;
mod files;
mod machines;
mod stage;

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{Pending, RpcReply, host_or_skip};
use deeds::{Deed, large, small};
use serde_json::{Value, json};
use stage::Stage;

/// Small random numbers that can be had again.
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

    /// Any time from none to a little more than this.
    fn within(&mut self, whole: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        whole.mul_f64((self.0 >> 11) as f64 / (1_u64 << 53) as f64 * 1.1)
    }
}

#[expect(clippy::print_stderr, reason = "what a failed test was doing belongs in its output")]
fn tell(deed: &Deed, what: &str) {
    eprintln!("{}: {what}", deed.what);
}

fn call(stage: &Stage, deed: &Deed) -> Pending {
    stage.client.start_tool(deed.tool, deed.arguments(stage))
}

/// Does it without any disturbance and says how long it took.
fn left_alone(stage: &Stage, deed: &Deed) -> Duration {
    (deed.before)(stage);
    let begun = Instant::now();
    let done = call(stage, deed).tool();
    let took = begun.elapsed();
    assert!(!done.is_error, "{}: {}", deed.what, done.text);
    (deed.after)(stage, true);
    stage.all_is_well();
    tell(deed, &format!("left alone it takes {took:?}"));
    took
}

/// Whether an answer came all the same, and that of a deed that was done.
fn is_answered(deed: &Deed, pending: &Pending) -> bool {
    match pending.wait_for(Duration::ZERO) {
        Some(RpcReply::Result(result)) => {
            assert_ne!(result["isError"], json!(true), "{}: {result}", deed.what);
            true
        }
        Some(RpcReply::Error { .. }) | None => false,
    }
}

/// Each of them once as it is, and then cancelled at random moments.
fn cancel(deeds: &[Deed]) {
    let internet = internet_or_skip!();
    let notes = stage::notes();
    let host = host_or_skip!(Stage::options(&internet, &notes));
    let stage = Stage::set(host, internet, notes);
    let mut moments = Moments::begin();
    for deed in deeds {
        let whole = left_alone(&stage, deed);
        for _ in 0..deed.rounds {
            (deed.before)(&stage);
            let moment = moments.within(whole);
            let pending = call(&stage, deed);
            std::thread::park_timeout(moment);
            stage.client.cancel(&pending);
            // The answers to what is asked next come after that of the call, if it has one.
            stage.listed();
            let answered = is_answered(deed, &pending);
            tell(deed, &format!("cancelled after {moment:?}, answered: {answered}"));
            (deed.after)(&stage, answered);
            stage.all_is_well();
        }
    }
    stage.end();
}

#[test]
fn a_small_call_that_is_cancelled_at_any_moment_has_happened_or_has_not() {
    cancel(&small());
}

#[test]
fn a_large_call_that_is_cancelled_at_any_moment_has_happened_or_has_not() {
    cancel(&large());
}

#[test]
fn every_tool_is_among_those_that_are_cancelled() {
    let host = host_or_skip!();
    let tools = host.client().request("tools/list", json!({})).result();
    let name = |tool: &Value| tool["name"].as_str().expect("a name").to_owned();
    let tools: BTreeSet<_> = tools["tools"].as_array().expect("tools").iter().map(name).collect();
    let tried: BTreeSet<_> = small().iter().chain(&large()).map(|deed| deed.tool.to_owned()).collect();
    assert_eq!(tools, tried);
}

#[test]
fn a_client_that_goes_away_in_the_middle_of_a_slow_call_leaves_nothing_half_done() {
    let internet = internet_or_skip!();
    let notes = stage::notes();
    let host = host_or_skip!(Stage::options(&internet, &notes));
    let mut stage = Stage::set(host, internet, notes);
    let mut moments = Moments::begin();
    let deeds: Vec<_> = small().into_iter().chain(large()).collect();
    for (number, deed) in deeds.iter().filter(|deed| deed.usually.is_some()).enumerate() {
        (deed.before)(&stage);
        let moment = moments.within(deed.usually.unwrap_or_default());
        let pending = call(&stage, deed);
        std::thread::park_timeout(moment);
        // Politely and not, in turn.
        if number % 2 == 0 {
            stage.client.hang_up();
        } else {
            stage.client.kill();
        }
        let answered = is_answered(deed, &pending);
        tell(deed, &format!("hung up after {moment:?}, answered: {answered}"));
        stage.next_client();
        (deed.after)(&stage, answered);
        stage.all_is_well();
    }
    stage.end();
}
