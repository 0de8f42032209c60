//! Limits answers to a size that a client's model can read.

use serde_json::Value;

/// Bytes of JSON that one answer may hold.
pub(super) const MAX_SHOWN: usize = 40_000;

/// Bytes of text: as JSON it is somewhat longer.
pub(super) const MAX_TEXT: usize = 32_000;

/// As many items as fit, in their order, and how many do not.
pub(in crate::tools) fn fitting(items: Vec<Value>) -> (Vec<Value>, usize) {
    let mut room = MAX_SHOWN;
    let total = items.len();
    let shown: Vec<Value> = items
        .into_iter()
        .take_while(|item| {
            let size = item.to_string().len() + 1;
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        })
        .collect();
    let hidden = total - shown.len();
    (shown, hidden)
}

/// A part of a text: begins at `offset` or at the first character after it, and has at most `most` bytes.
pub(super) fn part(text: &str, offset: usize, most: usize) -> (usize, &str) {
    let begin = text.ceil_char_boundary(offset.min(text.len()));
    let end = text.floor_char_boundary((begin + most).min(text.len()));
    (begin, &text[begin..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_parts_join_to_the_whole_text() {
        let text = "aä€😀".repeat(50);
        let (mut offset, mut joined) = (0, String::new());
        while offset < text.len() {
            let (begin, shown) = part(&text, offset, 7);
            assert!(begin == offset && !shown.is_empty() && shown.len() <= 7);
            joined.push_str(shown);
            offset += shown.len();
        }
        assert_eq!(joined, text);
        assert_eq!(part("ä", 1, 10), (2, ""));
        assert_eq!(part("x", 100, 10), (1, ""));
    }

    #[test]
    fn items_are_shown_while_they_fit() {
        let (shown, hidden) = fitting(vec![json!("x".repeat(MAX_SHOWN / 3)); 5]);
        assert_eq!((shown.len(), hidden), (2, 3));
        assert_eq!(fitting(Vec::new()), (Vec::new(), 0));
    }
}
