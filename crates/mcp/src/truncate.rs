//! Cuts a command's output to what the caller asked for.
//!
//! Output that fits is given whole. Output that does not becomes its beginning, a line that starts with
//! `[TRUNCATED` and states how many bytes there were and how many are shown, and its end:
//!
//! ```text
//! first lines …
//! [TRUNCATED 1048576 bytes in all, 262144 shown: the first 196608 and the last 65536]
//! … last lines
//! ```
//!
//! Beginning and end share the budget, three to one. A budget below [`MIN_SPLIT`] is spent on the beginning
//! alone: a caller who asks for so little wants to look at the first bytes.

use agentiso_daemon::Captured;

/// The budget from which the end is shown as well.
pub(crate) const MIN_SPLIT: u64 = 4096;

/// How much of the end of each stream is worth keeping for a budget.
pub(crate) fn tail_budget(max: u64) -> u64 {
    if max < MIN_SPLIT { 0 } else { max / 4 }
}

/// The text of one stream in at most `max` bytes, not counting the line about what is missing.
pub(crate) fn cut(captured: &Captured, max: u64) -> String {
    let budget = usize::try_from(max).unwrap_or(usize::MAX);
    let kept = captured.head.len() + captured.tail.len();
    let complete = captured.total_bytes <= kept as u64;
    if complete {
        let mut all = captured.head.to_vec();
        all.extend_from_slice(&captured.tail);
        let whole = first(&all, budget, true);
        if whole.source == all.len() {
            return whole.text;
        }
    }
    let tail = usize::try_from(tail_budget(max)).unwrap_or(usize::MAX);
    let begin = first(&captured.head, budget - tail, complete && captured.tail.is_empty());
    let end = last(&end_of(captured, begin.source, tail), tail);
    let shown = begin.source + end.source;
    let mut text = begin.text;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let total = captured.total_bytes;
    if end.source == 0 {
        text.push_str(&format!("[TRUNCATED {total} bytes in all, the first {shown} shown]"));
    } else {
        let (first, last) = (begin.source, end.source);
        text.push_str(&format!(
            "[TRUNCATED {total} bytes in all, {shown} shown: the first {first} and the last {last}]\n"
        ));
        text.push_str(&end.text);
    }
    text
}

/// The last bytes of a stream, at most `want` and none of the first `used`. They are in the tail, and where head
/// and tail touch also in the head.
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
    /// How many bytes of the stream it stands for.
    source: usize,
}

/// As much of the beginning as fits into `budget` bytes of text. What is not UTF-8 is replaced, and a character
/// that the end of `bytes` cuts in two is left out, unless the stream itself ends there.
fn first(bytes: &[u8], budget: usize, stream_ends: bool) -> Piece {
    let mut piece = Piece { text: String::new(), source: 0 };
    let whole = if stream_ends { bytes.len() } else { bytes.len() - unfinished(bytes) };
    let bytes = &bytes[..whole];
    for (text, source) in characters(bytes) {
        if piece.text.len() + text.len() > budget {
            break;
        }
        piece.text.push_str(text);
        piece.source += source;
    }
    piece
}

/// The same from the end: a character that the beginning of `bytes` cuts in two is left out.
fn last(bytes: &[u8], budget: usize) -> Piece {
    let begin = bytes.iter().take(3).take_while(|byte| (**byte & 0b1100_0000) == 0b1000_0000).count();
    let bytes = &bytes[begin..];
    let size: usize = characters(bytes).map(|(text, _)| text.len()).sum();
    let mut over = size.saturating_sub(budget);
    let mut piece = Piece { text: String::new(), source: 0 };
    for (text, source) in characters(bytes) {
        if over > 0 {
            over = over.saturating_sub(text.len());
        } else {
            piece.text.push_str(text);
            piece.source += source;
        }
    }
    piece
}

/// Each character with the number of bytes it stands for; a sequence that is none becomes U+FFFD.
fn characters(bytes: &[u8]) -> impl Iterator<Item = (&str, usize)> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let valid = chunk.valid();
        let good = valid.char_indices().map(move |(at, c)| (&valid[at..at + c.len_utf8()], c.len_utf8()));
        let bad = (!chunk.invalid().is_empty()).then_some(("\u{FFFD}", chunk.invalid().len()));
        good.chain(bad)
    })
}

/// How many bytes at the end begin a character without finishing it.
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

    /// What the guest keeps of a stream.
    fn capture(output: &[u8], max: u64) -> Captured {
        let head = output.len().min(max as usize);
        let tail = (output.len() - head).min(tail_budget(max) as usize);
        Captured {
            head: output[..head].to_vec().into(),
            tail: output[output.len() - tail..].to_vec().into(),
            total_bytes: output.len() as u64,
        }
    }

    fn shown(output: &[u8], max: u64) -> String {
        cut(&capture(output, max), max)
    }

    #[test]
    fn output_that_fits_is_given_whole() {
        assert_eq!(shown(b"hello\n", 6), "hello\n");
        assert_eq!(shown(b"", 1), "");
        assert_eq!(shown("ä".as_bytes(), 2), "ä");
        assert_eq!(shown(b"\xff\xfe", 100), "\u{FFFD}\u{FFFD}");
    }

    #[test]
    fn a_small_budget_shows_the_first_bytes_and_then_the_counts() {
        assert_eq!(shown(b"0123456789", 4), "0123\n[TRUNCATED 10 bytes in all, the first 4 shown]");
        assert_eq!(shown(b"012\n456789", 4), "012\n[TRUNCATED 10 bytes in all, the first 4 shown]");
        assert_eq!(shown("aää".as_bytes(), 4), "aä\n[TRUNCATED 5 bytes in all, the first 3 shown]");
    }

    #[test]
    fn a_large_budget_shows_beginning_and_end() {
        let output: String = (0..10_000).map(|n| format!("{n:05}\n")).collect();
        let text = shown(output.as_bytes(), 8192);
        let marker = "[TRUNCATED 60000 bytes in all, 8192 shown: the first 6144 and the last 2048]\n";
        let (begin, end) = text.split_once(marker).expect("the marker");
        assert_eq!(begin, &output[..6144]);
        assert_eq!(end, &output[60_000 - 2048..]);
    }

    #[test]
    fn output_just_over_the_budget_still_shows_its_whole_end() {
        let output: String = (0..1639).map(|n| format!("{n:04}\n")).collect();
        let text = shown(output.as_bytes(), 8192);
        assert!(text.ends_with(&output[output.len() - 2048..]), "{}", &text[text.len() - 100..]);
    }

    #[test]
    fn an_unfinished_character_is_recognised_by_its_first_byte() {
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
        fn never_more_than_asked_for_and_the_counts_are_true(
            output in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40_000),
                "(ä|€|😀|x){0,9000}".prop_map(String::into_bytes),
            ],
            max in prop_oneof![1u64..64, 4000u64..20_000],
        ) {
            let text = shown(&output, max);
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
            let replaced = shown(output.as_bytes(), max).contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(!replaced);
        }
    }
}
