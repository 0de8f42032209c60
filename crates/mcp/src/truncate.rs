//! Cuts a command's output to the size that the client requested, or to a default size.
//!
//! Output that fits is shown whole. If the client requested a size, longer output becomes its first bytes and a line
//! that starts with `[TRUNCATED`. By default, both streams share a budget so small that no answer floods a model's
//! context, and a stream that does not fit becomes its beginning, that line, and its end:
//!
//! ```text
//! first lines …
//! [TRUNCATED 1048576 bytes in all, 10240 shown: the first 7680 and the last 2560; …]
//! … last lines
//! ```

use agentiso_daemon::Captured;

/// The amount of a command's output that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// Bytes from the beginning of each stream, as the client requested.
    Requested(u64),
    /// Characters of JSON for both streams together, from their beginnings and ends.
    Default(u64),
}

/// Default budget of one command, and of all commands of one answer together: with names and figures this stays below
/// the 50,000 characters that no answer exceeds.
const ONE_COMMAND: u64 = 10_240;
const ALL_COMMANDS: u64 = 36_000;

/// Divisor: a stream that does not fit spends this fraction of its budget on its end.
const END_DIVISOR: u64 = 4;

impl Budget {
    /// The budget for an answer about this many commands.
    pub(crate) fn of(asked: Option<u64>, commands: usize) -> Self {
        match asked {
            Some(bytes) => Self::Requested(bytes),
            None => Self::Default(ONE_COMMAND.min(ALL_COMMANDS / commands.max(1) as u64)),
        }
    }

    /// The budget for a resource, which holds one job's output.
    pub(crate) const RESOURCE: Self = Self::Default(ALL_COMMANDS);

    /// Bytes of the beginning of each stream that are needed.
    pub(crate) fn head_bytes(self) -> u64 {
        match self {
            Self::Requested(bytes) | Self::Default(bytes) => bytes,
        }
    }

    /// Bytes of the end of each stream that are needed.
    pub(crate) fn tail_bytes(self) -> u64 {
        match self {
            Self::Requested(_) => 0,
            Self::Default(characters) => characters / END_DIVISOR,
        }
    }

    /// Cuts standard output and standard error. `rest` says how to get the missing part of each.
    pub(crate) fn cut(self, streams: [&Captured; 2], rest: [&str; 2]) -> [String; 2] {
        let budgets = match self {
            Self::Requested(bytes) => [bytes, bytes],
            Self::Default(all) => {
                let [out, err] = streams.map(|stream| stream_cost(stream, all));
                // Errors are shown even beside much output, and get all the room that the output leaves.
                let err = err.min(all.saturating_sub(out).max(all / END_DIVISOR));
                [all - err, err]
            }
        };
        [0, 1].map(|at| self.cut_one(streams[at], budgets[at], rest[at]))
    }

    fn cut_one(self, captured: &Captured, max: u64, rest: &str) -> String {
        let (cost, tail): (Cost, u64) = match self {
            Self::Requested(_) => (str::len, 0),
            Self::Default(_) => (escaped, max / END_DIVISOR),
        };
        let budget = usize::try_from(max).unwrap_or(usize::MAX);
        let tail = usize::try_from(tail).unwrap_or(usize::MAX);
        let complete = captured.total_bytes <= (captured.head.len() + captured.tail.len()) as u64;
        if complete {
            let all = [&captured.head[..], &captured.tail[..]].concat();
            let whole = first(&all, budget, true, cost);
            if whole.source == all.len() {
                return whole.text;
            }
        }
        let begin = first(&captured.head, budget - tail, complete && captured.tail.is_empty(), cost);
        let end = last(&end_of(captured, begin.source, tail), tail, cost);
        let shown = begin.source + end.source;
        let mut text = begin.text;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let total = captured.total_bytes;
        if end.source == 0 {
            text.push_str(&format!("[TRUNCATED {total} bytes in all, the first {shown} shown; {rest}]"));
        } else {
            let (first, last) = (begin.source, end.source);
            text.push_str(&format!(
                "[TRUNCATED {total} bytes in all, {shown} shown: the first {first} and the last {last}; {rest}]\n"
            ));
            text.push_str(&end.text);
        }
        text
    }
}

/// The cost of a character within a budget.
type Cost = fn(&str) -> usize;

/// The cost in JSON.
fn escaped(character: &str) -> usize {
    match character.as_bytes() {
        [b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0C] => 2,
        [0..0x20] => 6,
        other => other.len(),
    }
}

/// The end of a text that has this many characters in JSON.
pub(crate) fn end_within(text: &str, characters: usize) -> &str {
    &text[text.len() - last(text.as_bytes(), characters, escaped).source..]
}

/// The cost of a whole stream, at most `most`.
fn stream_cost(captured: &Captured, most: u64) -> u64 {
    if captured.total_bytes > most {
        return most;
    }
    let both = [&captured.head[..], &captured.tail[..]].concat();
    let cost: usize = characters(&both).map(|(text, _)| escaped(text)).sum();
    most.min(cost as u64)
}

/// The last bytes of a stream, at most `want` and none of the first `used`. They are in the tail, and where head and
/// tail touch also in the head.
fn end_of(captured: &Captured, used: usize, want: usize) -> Vec<u8> {
    let (head, tail) = (&captured.head[..], &captured.tail[..]);
    if tail.len() >= want {
        return tail[tail.len() - want..].to_vec();
    }
    let touching = captured.total_bytes == (head.len() + tail.len()) as u64;
    let from = head.len().saturating_sub(want - tail.len()).max(used);
    let mut end = if touching { head[from.min(head.len())..].to_vec() } else { Vec::new() };
    end.extend_from_slice(tail);
    end
}

struct Piece {
    text: String,
    /// Bytes of the stream that it stands for.
    source: usize,
}

/// As much of the beginning as `budget` allows. Bytes that are not UTF-8 are replaced, and a character that the end of
/// `bytes` cuts in two is left out, unless the stream itself ends there.
fn first(bytes: &[u8], budget: usize, stream_ends: bool, cost: Cost) -> Piece {
    let mut piece = Piece { text: String::new(), source: 0 };
    let whole = if stream_ends { bytes.len() } else { bytes.len() - unfinished(bytes) };
    let mut spent = 0;
    for (text, source) in characters(&bytes[..whole]) {
        spent += cost(text);
        if spent > budget {
            break;
        }
        piece.text.push_str(text);
        piece.source += source;
    }
    piece
}

/// The same from the end: a character that the beginning of `bytes` cuts in two is left out.
fn last(bytes: &[u8], budget: usize, cost: Cost) -> Piece {
    let begin = bytes.iter().take(3).take_while(|byte| (**byte & 0b1100_0000) == 0b1000_0000).count();
    let bytes = &bytes[begin..];
    let size: usize = characters(bytes).map(|(text, _)| cost(text)).sum();
    let mut over = size.saturating_sub(budget);
    let mut piece = Piece { text: String::new(), source: 0 };
    for (text, source) in characters(bytes) {
        if over > 0 {
            over = over.saturating_sub(cost(text));
        } else {
            piece.text.push_str(text);
            piece.source += source;
        }
    }
    piece
}

/// Each character with the number of bytes it stands for; an invalid sequence becomes U+FFFD.
fn characters(bytes: &[u8]) -> impl Iterator<Item = (&str, usize)> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let valid = chunk.valid();
        let good = valid.char_indices().map(move |(at, c)| (&valid[at..at + c.len_utf8()], c.len_utf8()));
        let bad = (!chunk.invalid().is_empty()).then_some(("\u{FFFD}", chunk.invalid().len()));
        good.chain(bad)
    })
}

/// Number of bytes at the end that begin a character without finishing it.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    let recent = bytes.len().saturating_sub(3);
    let Some(lead) = bytes[recent..].iter().rposition(|byte| (*byte & 0b1100_0000) != 0b1000_0000) else {
        return 0;
    };
    let present = bytes.len() - recent - lead;
    let needed = match bytes[recent + lead] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    if present < needed { present } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REST: [&str; 2] = ["more", "more"];

    /// Captures output as the guest does.
    fn capture(output: &[u8], budget: Budget) -> Captured {
        let head = output.len().min(budget.head_bytes() as usize);
        let tail = (output.len() - head).min(budget.tail_bytes() as usize);
        Captured {
            head: output[..head].to_vec().into(),
            tail: output[output.len() - tail..].to_vec().into(),
            total_bytes: output.len() as u64,
        }
    }

    fn shown(output: &[u8], budget: Budget) -> String {
        let [text, none] = budget.cut([&capture(output, budget), &Captured::default()], REST);
        assert_eq!(none, "");
        text
    }

    #[test]
    fn output_that_fits_is_given_whole() {
        assert_eq!(shown(b"hello\n", Budget::Requested(6)), "hello\n");
        assert_eq!(shown(b"hello\n", Budget::Default(7)), "hello\n");
        assert_eq!(shown(b"", Budget::Requested(1)), "");
        assert_eq!(shown("ä".as_bytes(), Budget::Requested(2)), "ä");
        assert_eq!(shown(b"\xff\xfe", Budget::Requested(100)), "\u{FFFD}\u{FFFD}");
    }

    #[test]
    fn requested_limit_shows_the_first_bytes() {
        let asked = Budget::Requested(4);
        assert_eq!(shown(b"0123456789", asked), "0123\n[TRUNCATED 10 bytes in all, the first 4 shown; more]");
        assert_eq!(shown(b"012\n456789", asked), "012\n[TRUNCATED 10 bytes in all, the first 4 shown; more]");
        assert_eq!(shown("aää".as_bytes(), asked), "aä\n[TRUNCATED 5 bytes in all, the first 3 shown; more]");
        let long = "x".repeat(300_000);
        let text = shown(long.as_bytes(), Budget::Requested(200_000));
        assert_eq!(text.split_once('\n').unwrap().0, &long[..200_000]);
    }

    #[test]
    fn default_budget_shows_beginning_and_end() {
        let output: String = (0..10_000).map(|n| format!("{n:05}\n")).collect();
        let text = shown(output.as_bytes(), Budget::of(None, 1));
        let (begin, rest) = text.split_once("[TRUNCATED 60000 bytes in all, ").expect("the marker");
        let (_, end) = rest.split_once("; more]\n").expect("the end");
        // A cut line is ended, so that the marker has a line of its own.
        assert!(output.starts_with(begin.trim_end()) && output.ends_with(end), "{text}");
        assert!(begin.len() > 6_000 && end.len() > 2_000, "{} and {}", begin.len(), end.len());
    }

    #[test]
    fn stderr_gets_the_room_stdout_leaves() {
        let budget = Budget::Default(8_000);
        let cut = |out: usize, err: usize| {
            let [out, err] = [out, err].map(|length| capture("x".repeat(length).as_bytes(), budget));
            budget.cut([&out, &err], REST).map(|text| text.matches('x').count())
        };
        assert_eq!(cut(1_000, 5_000), [1_000, 5_000]);
        assert_eq!(cut(100_000, 500), [7_500, 500]);
        assert_eq!(cut(100_000, 100_000), [6_000, 2_000]);
        assert_eq!(cut(10, 100_000), [10, 7_990]);
    }

    #[test]
    fn answers_stay_below_50000_characters() {
        for byte in [b'x', b'\n', 0, 0xff] {
            for commands in [1, 2, 7, 20] {
                let budget = Budget::of(None, commands);
                let output = capture(&vec![byte; 100_000], budget);
                let cut = serde_json::json!(budget.cut([&output, &output], ["how to get the rest of it"; 2]));
                let all = (cut.to_string().chars().count() + 300) * commands;
                assert!(all < 50_000, "{commands} times {byte}: {all}");
            }
        }
    }

    #[test]
    fn unfinished_character_is_found_by_lead_byte() {
        assert_eq!(unfinished("ä".as_bytes()), 0);
        assert_eq!(unfinished(&"ä".as_bytes()[..1]), 1);
        assert_eq!(unfinished(&"€".as_bytes()[..2]), 2);
        assert_eq!(unfinished(&"😀".as_bytes()[..3]), 3);
        assert_eq!(unfinished("😀".as_bytes()), 0);
        assert_eq!(unfinished(b"\x80\x80\x80\x80"), 0);
        assert_eq!(unfinished(b""), 0);
    }

    proptest! {
        #[test]
        fn cut_output_respects_limit_and_counts_bytes(
            output in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40_000),
                "(ä|€|😀|x){0,9000}".prop_map(String::into_bytes),
            ],
            max in prop_oneof![1u64..64, 4000u64..20_000],
            asked in any::<bool>(),
        ) {
            let budget = if asked { Budget::Requested(max) } else { Budget::Default(max) };
            let text = shown(&output, budget);
            let marker = text.lines().find(|line| line.starts_with("[TRUNCATED ")).map(str::to_owned);
            match marker {
                None => prop_assert_eq!(text, String::from_utf8_lossy(&output)),
                Some(marker) => {
                    let room = max as usize + marker.len() + 2;
                    prop_assert!(text.len() <= room, "{} > {}", text.len(), room);
                    let total = format!("[TRUNCATED {} bytes in all, ", output.len());
                    prop_assert!(marker.starts_with(&total));
                }
            }
        }

        #[test]
        fn valid_text_is_never_replaced(output in "(ä|€|😀|x){0,9000}", max in 1u64..9000) {
            for budget in [Budget::Requested(max), Budget::Default(max)] {
                prop_assert!(!shown(output.as_bytes(), budget).contains(char::REPLACEMENT_CHARACTER));
            }
        }
    }
}
