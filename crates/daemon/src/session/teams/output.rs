//! Shortens the output of a finished task to the bytes that a result may have.

use agentiso_core::team::Outcome;

use crate::vms::{Captured, JobState};

/// Bytes of each stream in a result, from the tool contract.
const MAX_STDOUT: usize = 4096;
const MAX_STDERR: usize = 2048;

/// Bytes of the beginning and of the end of each stream that are read from the guest: enough for either to fill half a
/// result.
pub(super) const HALF: u64 = 2048;
const _: () = assert!(2 * HALF as usize >= MAX_STDOUT && MAX_STDOUT >= MAX_STDERR);

/// Marks the part that is left out.
const GAP: &str = "\n[...]\n";

pub(super) fn ended(state: &JobState) -> Outcome {
    Outcome {
        exit_code: match (state.exit_code, state.signal) {
            (Some(code), _) => code,
            // The exit code that a shell reports for a signal.
            (None, Some(signal)) => 128 + signal,
            (None, None) => -1,
        },
        stdout: text(&state.stdout, MAX_STDOUT),
        stderr: text(&state.stderr, MAX_STDERR),
        elapsed_secs: state.duration.as_secs(),
    }
}

/// The outcome of a task that was killed because its time was up.
pub(super) fn timed_out(state: &JobState) -> Outcome {
    let reason = format!("[timed out after {} s and was killed]", state.duration.as_secs());
    let said = text(&state.stderr, MAX_STDERR - reason.len() - 1);
    let gap = if said.is_empty() || said.ends_with('\n') { "" } else { "\n" };
    Outcome { exit_code: -1, stderr: format!("{said}{gap}{reason}"), ..ended(state) }
}

/// At most `max` bytes of a stream: its beginning and its end.
fn text(output: &Captured, max: usize) -> String {
    let kept = [&output.head[..], &output.tail[..]].concat();
    let all = String::from_utf8_lossy(&kept);
    if output.total_bytes <= kept.len() as u64 && all.len() <= max {
        return all.into_owned();
    }
    let half = (max - GAP.len()) / 2;
    let begin = all.floor_char_boundary(half);
    let end = all.ceil_char_boundary(all.len().saturating_sub(half)).max(begin);
    format!("{}{GAP}{}", &all[..begin], &all[end..])
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn printed(text: &[u8]) -> Captured {
        let half = HALF as usize;
        let head = text.len().min(half);
        let tail = (text.len() - head).min(half);
        Captured {
            head: Bytes::copy_from_slice(&text[..head]),
            tail: Bytes::copy_from_slice(&text[text.len() - tail..]),
            total_bytes: text.len() as u64,
        }
    }

    #[test]
    fn long_task_output_keeps_beginning_and_end() {
        assert_eq!(text(&printed(b"hi\n"), 2048), "hi\n");
        let exact = "x".repeat(4096);
        assert_eq!(text(&printed(exact.as_bytes()), 4096), exact);
        let long = format!("begin {} end", "ä€😀".repeat(5000));
        for max in [2048, 4096] {
            let cut = text(&printed(long.as_bytes()), max);
            assert!(cut.len() <= max && cut.starts_with("begin ") && cut.ends_with(" end"), "{}", cut.len());
            assert!(cut.contains(GAP));
        }
        // The limits of the contract as literal numbers, so that a changed constant fails here.
        let both = ended(&JobState {
            stdout: printed(long.as_bytes()),
            stderr: printed(long.as_bytes()),
            ..JobState::default()
        });
        assert!((4000..=4096).contains(&both.stdout.len()), "{}", both.stdout.len());
        assert!((2000..=2048).contains(&both.stderr.len()), "{}", both.stderr.len());
        let bytes = vec![0xff; 4000];
        assert!(text(&printed(&bytes), 2048).len() <= 2048);
    }

    #[test]
    fn timed_out_task_result_states_the_reason() {
        let state = JobState { signal: Some(9), stderr: printed(&[b'e'; 9000]), ..JobState::default() };
        let outcome = timed_out(&state);
        assert!(outcome.stderr.ends_with("was killed]") && outcome.stderr.len() <= MAX_STDERR);
        assert_eq!((outcome.exit_code, ended(&state).exit_code), (-1, 137));
    }
}
