//! Reads the status of a server's HTTP answer, past informational (1xx) answers.

/// `None`: not known yet. Status 0 means that it is not an HTTP/1 answer.
pub(super) fn status(mut bytes: &[u8]) -> Option<u16> {
    const END: &[u8] = b"\r\n\r\n";
    loop {
        let status = first(bytes)?;
        if !(100..=199).contains(&status) || status == 101 {
            return Some(status);
        }
        let end = bytes.windows(END.len()).position(|window| window == END)?;
        bytes = &bytes[end + END.len()..];
    }
}

fn first(bytes: &[u8]) -> Option<u16> {
    const START: &[u8] = b"HTTP/1.";
    /// The length of `HTTP/1.1 101` and the byte behind it.
    const LENGTH: usize = 13;
    let compared = bytes.len().min(START.len());
    if bytes[..compared] != START[..compared] {
        return Some(0);
    }
    let line = bytes.get(..LENGTH)?;
    let is_plain = matches!(line[7], b'0' | b'1') && line[8] == b' ' && matches!(line[12], b' ' | b'\r');
    let digits =
        std::str::from_utf8(&line[9..12]).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    Some(digits.filter(|_| is_plain).and_then(|digits| digits.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn informational_answers_do_not_count_as_status() {
        let switching = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 101 Switching\r\nUpgrade: x\r\n\r\n";
        for length in 0..38 {
            assert_eq!(status(&switching[..length]), None, "{length}");
        }
        assert_eq!(status(&switching[..38]), Some(101));
        assert_eq!(status(b"HTTP/1.1 200 OK"), Some(200));
        for other in
            [&b"SSH-2.0"[..], b"HTTP/2 200 OKAY", b"HTTP/1.1 2000 OK", b"HTTP/1.1 2x0 OK", b"HTTP/1.1  200 O"]
        {
            assert_eq!(status(other), Some(0), "{other:?}");
        }
    }
}
