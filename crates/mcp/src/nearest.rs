//! Finds the passage of a text that is most similar to one that does not occur in it.

use strsim::sorensen_dice;

/// Limit of compared pairs of lines; comparing them takes a fraction of a second.
const MAX_PAIRS: usize = 200_000;

/// Longer lines are only compared for equality, because the cost grows with their length.
const MAX_COMPARED: usize = 400;

/// Below this similarity, showing something would mislead.
const MIN_SIMILARITY: f64 = 0.5;

/// Bytes of the passage that are shown.
const MAX_SHOWN: usize = 2000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nearest {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// Whether only white space differs.
    pub(crate) only_space: bool,
}

/// The passage with as many lines as `wanted` that is most similar to it.
pub(crate) fn find(text: &str, wanted: &str) -> Option<Nearest> {
    let lines: Vec<&str> = text.split('\n').collect();
    let wanted: Vec<&str> = wanted.trim_matches('\n').split('\n').collect();
    if wanted.iter().all(|line| line.trim().is_empty()) || lines.len() * wanted.len() > MAX_PAIRS {
        return None;
    }
    let similarity_at = |at: usize| {
        let pairs = lines[at..].iter().zip(&wanted);
        pairs.map(|(line, wanted)| similarity(line, wanted)).sum::<f64>() / wanted.len() as f64
    };
    let mut best = (0, 0.0);
    for at in 0..lines.len() {
        let found = similarity_at(at);
        // The first of equals wins.
        if found > best.1 {
            best = (at, found);
        }
    }
    let (at, found) = best;
    if found < MIN_SIMILARITY {
        return None;
    }
    let shown = lines[at..lines.len().min(at + wanted.len())].join("\n");
    let words = |lines: &str| lines.split_whitespace().collect::<String>();
    let only_space = words(&shown) == words(&wanted.join("\n"));
    let mut text = shown;
    text.truncate(text.floor_char_boundary(MAX_SHOWN));
    Some(Nearest { line: at + 1, text, only_space })
}

/// Similarity from 0 to 1, without indentation. A wanted line that is a part of the line counts as equal.
fn similarity(line: &str, wanted: &str) -> f64 {
    let (line, wanted) = (line.trim(), wanted.trim());
    if line == wanted || (!wanted.is_empty() && line.contains(wanted)) {
        return 1.0;
    }
    if line.len() > MAX_COMPARED || wanted.len() > MAX_COMPARED { 0.0 } else { sorensen_dice(line, wanted) }
}

#[cfg(test)]
mod tests {
    use super::find;

    const TEXT: &str =
        "fn main() {\n    let greeting = \"hello\";\n    println!(\"{greeting}\");\n}\n\nfn other() {}\n";

    #[test]
    fn differently_indented_text_is_found() {
        let found = find(TEXT, "  let greeting = \"hello\";\n  println!(\"{greeting}\");").unwrap();
        assert_eq!((found.line, found.only_space), (2, true));
        assert_eq!(found.text, "    let greeting = \"hello\";\n    println!(\"{greeting}\");");
        let windows = TEXT.replace('\n', "\r\n");
        assert!(find(&windows, "fn main() {\n    let greeting = \"hello\";").unwrap().only_space);
    }

    #[test]
    fn text_with_one_different_word_is_found() {
        let found = find(TEXT, "let greeting = \"hallo\";").unwrap();
        assert_eq!((found.line, found.only_space), (2, false));
    }

    #[test]
    fn unlike_text_is_not_found() {
        assert_eq!(find(TEXT, "SELECT * FROM users WHERE id = 7"), None);
        assert_eq!(find("", "x"), None);
        assert_eq!(find(TEXT, "\n \n"), None);
        assert_eq!(find(&"line\n".repeat(300_000), "lime"), None);
    }

    #[test]
    fn nearest_text_is_cut_between_characters() {
        let long = "ä".repeat(5000);
        let found = find(&long, &"ä".repeat(4000)).unwrap();
        assert_eq!(found.text.len(), 2000);
    }
}
