//! Turns arguments into a command line for `/bin/sh -c`.

/// One word is taken as a shell command, so that pipes and `;` work. Several words are a program and its arguments,
/// which it gets unchanged.
pub(crate) fn command_line(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
    }
}

pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn several_words_reach_the_program_unchanged() {
        let words = ["printf", "%s\\n", "a b", "$HOME;'", "", "\"x\"", "*", "ä\nb", "-n"].map(str::to_owned);
        let direct = Command::new(&words[0]).args(&words[1..]).output().unwrap();
        let shell = Command::new("/bin/sh").arg("-c").arg(command_line(&words)).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&shell.stdout), String::from_utf8_lossy(&direct.stdout));
    }

    #[test]
    fn word_with_equals_sign_is_quoted() {
        let words = ["A=1", "env"].map(str::to_owned);
        // `A=1` is the program's name here and must not become an assignment, so it is quoted.
        assert_eq!(command_line(&words), "'A=1' env");
    }

    #[test]
    fn one_word_is_a_shell_command() {
        assert_eq!(command_line(&["echo a | wc -c".to_owned()]), "echo a | wc -c");
    }
}
