//! Reads lines of bounded length. A longer line is skipped and not kept; its request id is extracted on the way, so
//! that the request can be refused by its id.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::id_scan::IdScanner;

/// The longest request. A file of 32 MiB fits even if a quarter of its bytes must be escaped in JSON.
pub(crate) const MAX_LINE: usize = 64 * 1024 * 1024;

/// A buffer that grew beyond this for one request is freed afterwards: a session is mostly idle.
const KEEP_CAPACITY: usize = 256 * 1024;

/// Bytes that are read from the socket at once.
const READ_SIZE: usize = 64 * 1024;

#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Whole(Vec<u8>),
    /// Longer than the bound; skipped to its end. The id is that of the request, if it had one.
    TooLong {
        id: Option<Value>,
    },
    /// The peer closed its side, or the stream broke.
    End,
}

pub(super) struct LineReader<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    max: usize,
    /// Present while the rest of a line that was too long is being skipped.
    skipping: Option<IdScanner>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(read: R, max: usize) -> Self {
        Self { read: BufReader::with_capacity(READ_SIZE, read), line: Vec::new(), max, skipping: None }
    }

    /// The next line without its line feed. May be dropped and called again at any time: everything read so far is kept
    /// in `self`, and no await comes between taking bytes from the buffer and keeping them.
    pub(super) async fn next(&mut self) -> Line {
        loop {
            let Ok(available) = self.read.fill_buf().await else { return self.at_end() };
            if available.is_empty() {
                return self.at_end();
            }
            let newline = available.iter().position(|b| *b == b'\n');
            let content = &available[..newline.unwrap_or(available.len())];
            match &mut self.skipping {
                Some(scanner) => scanner.feed(content),
                None if self.line.len() + content.len() > self.max => {
                    let mut scanner = IdScanner::default();
                    scanner.feed(&self.line);
                    scanner.feed(content);
                    self.line = Vec::new();
                    self.skipping = Some(scanner);
                }
                None => self.line.extend_from_slice(content),
            }
            let taken = newline.map_or(available.len(), |at| at + 1);
            self.read.consume(taken);
            if newline.is_some() {
                return self.finish();
            }
        }
    }

    fn finish(&mut self) -> Line {
        match self.skipping.take() {
            Some(scanner) => Line::TooLong { id: scanner.id() },
            None => {
                let line = std::mem::take(&mut self.line);
                // Most lines are short: keeping a small buffer saves an allocation per request.
                self.line.reserve(line.len().min(KEEP_CAPACITY));
                Line::Whole(line)
            }
        }
    }

    /// A last line without a line feed still counts: a here-document in a script may end so.
    fn at_end(&mut self) -> Line {
        if self.line.is_empty() && self.skipping.is_none() { Line::End } else { self.finish() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    async fn lines_of(input: &[u8], max: usize) -> Vec<Line> {
        let mut reader = LineReader::new(input, max);
        let mut lines = Vec::new();
        loop {
            match reader.next().await {
                Line::End => return lines,
                line @ (Line::Whole(_) | Line::TooLong { .. }) => lines.push(line),
            }
        }
    }

    #[tokio::test]
    async fn line_beyond_the_bound_is_refused() {
        let lines = lines_of(b"12345678\n123456789\nafter\n", 8).await;
        assert_eq!(
            lines,
            [Line::Whole(b"12345678".to_vec()), Line::TooLong { id: None }, Line::Whole(b"after".to_vec())]
        );
    }

    #[tokio::test]
    async fn skipped_request_id_is_found_anywhere() {
        let long = "x".repeat(100_000);
        let first = format!("{{\"id\": 7, \"params\": {{\"id\": 1, \"x\": \"{long}\"}}}}\n");
        let last = format!("{{\"params\": {{\"id\": 1, \"x\": \"{long}\"}}, \"id\": \"seven\"}}\n");
        assert_eq!(lines_of(first.as_bytes(), 64).await, [Line::TooLong { id: Some(json!(7)) }]);
        assert_eq!(lines_of(last.as_bytes(), 64).await, [Line::TooLong { id: Some(json!("seven")) }]);
    }

    #[tokio::test]
    async fn last_line_needs_no_line_feed() {
        assert_eq!(lines_of(b"a\nb", 8).await, [Line::Whole(b"a".to_vec()), Line::Whole(b"b".to_vec())]);
    }
}
