//! Removes credentials from shown text: output of git, errors, URLs.
//!
//! Hidden are tokens by their prefix, the user and password of URLs, and what follows `Authorization:` and `Bearer`.
//! Doubtful text is treated as a secret.

const HIDDEN: &str = "***";

/// The prefixes of tokens of the large git hosts.
const TOKENS: [&str; 7] = ["github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-"];

/// The schemes that may follow a lower-case `authorization:`. The word alone may be part of a program.
const AUTH_SCHEMES: [&str; 5] = ["bearer ", "basic ", "token ", "digest ", "negotiate "];

/// A word after a lower-case `bearer` is a token if it has this length or contains a digit.
const LONG_WORD: usize = 20;

/// Replaces the credentials in a text. Text without credentials is unchanged.
pub fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match secret_at(text, at) {
            Some(secret) => {
                clean.push_str(&text[at..secret.begin]);
                clean.push_str(HIDDEN);
                at = secret.end;
            }
            None => {
                clean.push(c);
                at += c.len_utf8();
            }
        }
    }
    clean
}

/// The range of a secret, after the text that announces it.
struct Secret {
    begin: usize,
    end: usize,
}

fn secret_at(text: &str, at: usize) -> Option<Secret> {
    match text.as_bytes()[at] {
        b'g' => token(text, at),
        b':' => userinfo(text, at),
        b'a' | b'A' => authorization(text, at),
        b'b' | b'B' => bearer(text, at),
        _ => None,
    }
}

fn token(text: &str, at: usize) -> Option<Secret> {
    let prefix = TOKENS.iter().find(|prefix| text[at..].starts_with(**prefix))?;
    let body = at + prefix.len();
    let end = body + run(&text[body..], |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    (end > body).then_some(Secret { begin: at, end })
}

/// The part before the `@` of a URL. A user without a password may be a token for http and https; for ssh it is only a
/// name.
fn userinfo(text: &str, at: usize) -> Option<Secret> {
    let begin = at + 3;
    let rest = text[at..].strip_prefix("://")?;
    let word = &rest[..run(rest, |c| !c.is_whitespace() && !matches!(c, '<' | '>'))];
    let authority = &word[..run(word, |c| !matches!(c, '/' | '?' | '#'))];
    let (user, end) = match authority.rfind('@') {
        Some(end) => (&authority[..end], end),
        // A password with a slash looks like the end of the host, but it is still a password.
        None => {
            let (_, after) = authority.rsplit_once(':').filter(|_| !authority.starts_with('['))?;
            let is_port = after.chars().all(|c| c.is_ascii_digit());
            let end = word.rfind('@').filter(|_| !is_port)?;
            (&word[..end], end)
        }
    };
    let scheme = text[..at].to_ascii_lowercase();
    let hides = user.contains(':') || scheme.ends_with("http") || scheme.ends_with("https");
    (hides && !user.is_empty()).then_some(Secret { begin, end: begin + end })
}

/// The rest of a line `Authorization: …`.
fn authorization(text: &str, at: usize) -> Option<Secret> {
    const WORD: &str = "Authorization";
    let word = text.get(at..at + WORD.len()).filter(|word| word.eq_ignore_ascii_case(WORD))?;
    let rest = &text[at + WORD.len()..];
    let value = rest.trim_start_matches(['"', '\'']).trim_start_matches([' ', '\t']).strip_prefix(':')?;
    let value = value.trim_start_matches([' ', '\t', '"', '\'']);
    let begin = text.len() - value.len();
    let end = begin + run(value, |c| !matches!(c, '\n' | '\r'));
    let announced = AUTH_SCHEMES.iter().any(|scheme| starts_with(value, scheme));
    ((word == WORD || announced) && end > begin).then_some(Secret { begin, end })
}

fn bearer(text: &str, at: usize) -> Option<Secret> {
    const WORD: &str = "Bearer";
    let word = text.get(at..at + WORD.len()).filter(|word| word.eq_ignore_ascii_case(WORD))?;
    if text[..at].ends_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let rest = &text[at + WORD.len()..];
    let value = rest.trim_start_matches([' ', '\t']);
    let begin = text.len() - value.len();
    let token = &value[..run(value, |c| c.is_ascii_alphanumeric() || "._~+/=-".contains(c))];
    let looks_like_one =
        word == WORD || token.len() >= LONG_WORD || token.contains(|c: char| c.is_ascii_digit());
    (value.len() < rest.len() && !token.is_empty() && looks_like_one)
        .then_some(Secret { begin, end: begin + token.len() })
}

/// The length in bytes of the longest prefix of such characters.
fn run(text: &str, is_one: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_one(c)).unwrap_or(text.len())
}

fn starts_with(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_kind_of_credential_is_hidden() {
        for (text, shown) in [
            ("fatal: 'https://u:p@h/x'", "fatal: 'https://***@h/x'"),
            ("https://ghp_abc@github.com/x", "https://***@github.com/x"),
            ("https://token@h/x http://a:b@c:80/", "https://***@h/x http://***@c:80/"),
            ("ssh://user:pw@h/x", "ssh://***@h/x"),
            ("https://user:pa/ss@h/x", "https://***@h/x"),
            ("https://user:p@ss@h/x", "https://***@h/x"),
            ("token ghp_A1b2, then", "token ***, then"),
            ("github_pat_11AA_bb glpat-x-Y_1", "*** ***"),
            ("Authorization: Basic dTpw\nnext", "Authorization: ***\nnext"),
            ("> authorization: bearer abc\r\n", "> authorization: ***\r\n"),
            ("{\"Authorization\": \"token x\"}", "{\"Authorization\": \"***"),
            ("a Bearer abc.def-1 b", "a Bearer *** b"),
            ("bearer a1", "bearer ***"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in [
            "",
            "ssh://git@github.com/a and git@github.com:a/b",
            "https://example.com:8080/pkg@v1.2",
            "https://example.com/a?b=c#d@e",
            "nginx:1.25@sha256:abc",
            "ghp_ and glpat- alone",
            "the bearer of good news, a bearer token",
            "struct A { authorization: String }",
            "a@b.c: d",
            "ä://ü",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    proptest! {
        #[test]
        fn no_token_survives(
            before in "\\PC{0,20}", after in "( \\PC{0,20})?",
            prefix in prop::sample::select(&TOKENS[..]), body in "[A-Za-z0-9]{12,40}",
        ) {
            let shown = redact(&format!("{before}{prefix}{body}{after}"));
            prop_assert!(!shown.contains(&body), "{}", shown);
        }

        #[test]
        fn no_password_of_a_url_survives(
            before in "\\PC{0,20}", after in "\\PC{0,20}", scheme in "https?|ssh|git",
            user in "[a-z]{1,8}", password in "[A-Za-z0-9:@!%'\"+=,~-]{12,30}x",
        ) {
            let shown = redact(&format!("{before} {scheme}://{user}:{password}@host/path {after}"));
            prop_assert!(!shown.contains(&password), "{shown}");
        }

        #[test]
        fn nothing_of_an_authorization_survives(before in "\\PC{0,20}", value in "[A-Za-z0-9+/=]{12,40}", word in "Bearer|Basic|token|") {
            let text = format!("{before}\nAuthorization: {word} {value}\nend");
            let shown = redact(&text);
            prop_assert!(!shown.contains(&value) && shown.ends_with("\nend"), "{shown}");
            let traced = redact(&format!("{before} Bearer {value}"));
            prop_assert!(!traced.contains(&value));
        }

        #[test]
        fn text_without_credential_marks_is_unchanged(text in "[^:@_-]{0,200}") {
            prop_assume!(!text.to_lowercase().contains("bearer"));
            prop_assert_eq!(redact(&text), text);
        }

        #[test]
        fn redaction_is_idempotent(text in "\\PC{0,60}|(https://|[a-z:@/ ]|ghp_|Bearer |Authorization: ){0,20}") {
            let once = redact(&text);
            prop_assert_eq!(redact(&once), once);
        }
    }
}
