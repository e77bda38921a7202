//! Texts for people.

use std::io::{self, Write};
use std::time::Duration;

/// A text that cannot steer a terminal: control characters, and those that reorder or hide text, are escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\'' | '\\' => plain.push(letter),
            _ => plain.extend(letter.escape_debug()),
        }
    }
    plain
}

/// A name in quotes, with everything escaped that could be mistaken.
pub(crate) fn quoted(name: &str) -> String {
    format!("{name:?}")
}

/// A length in milliseconds as `29s 700ms`.
pub(crate) fn length_ms(length_ms: u64) -> String {
    length(Duration::from_millis(length_ms))
}

/// A length as `29s 700ms`, cut to milliseconds.
pub(crate) fn length(length: Duration) -> String {
    let whole_ms = Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
    humantime::format_duration(whole_ms).to_string()
}

/// Writes a line to stdout, at once.
pub(crate) fn print_line(line: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_others_cannot_steer_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\nc\u{202e}d \"é\" \\"), "a\\u{1b}[2Jb\\nc\\u{202e}d \"é\" \\");
        assert_eq!(quoted("-a\n\"\x1b"), r#""-a\n\"\u{1b}""#);
    }

    #[test]
    fn lengths_carry_units() {
        assert_eq!(length_ms(29_700), "29s 700ms");
        assert_eq!(length(Duration::from_micros(1_999)), "1ms");
        assert_eq!(length_ms(0), "0s");
    }
}
