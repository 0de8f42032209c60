//! Quoting of shell words.

/// Quotes any text as one word of a POSIX shell, so that nothing in it is interpreted. It must not contain a NUL byte,
/// because program arguments cannot.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for part in text.split_inclusive('\'') {
        match part.strip_suffix('\'') {
            Some(before) => {
                quoted.push_str(before);
                quoted.push_str("'\\''");
            }
            None => quoted.push_str(part),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_stays_one_word() {
        assert_eq!(quote(""), "''");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("$(x) `y` \\ \"z\"\n"), "'$(x) `y` \\ \"z\"\n'");
        assert_eq!(quote("it's"), "'it'\\''s'");
        assert_eq!(quote("''"), "''\\'''\\'''");
    }
}
