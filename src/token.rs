//! Where a token comes from: the flag, the environment, or stdin.

use std::io::{IsTerminal, Read};

use lockstead_client::api::Secret;

use crate::exit::Failure;

const VARIABLE: &str = "LOCKSTEAD_TOKEN";
const STDIN_BYTES_MAX: u64 = 4_096;

/// The token given by `--token`, else by `LOCKSTEAD_TOKEN`, else on stdin.
pub(crate) fn find(flag: Option<String>) -> Result<Secret, Failure> {
    match flag.or_else(|| std::env::var(VARIABLE).ok()) {
        Some(token) => Ok(token.into()),
        None if std::io::stdin().is_terminal() => Err(no_token("stdin is a terminal")),
        None => from_reader(std::io::stdin().lock()),
    }
}

fn from_reader(reader: impl Read) -> Result<Secret, Failure> {
    let mut text = String::new();
    reader.take(STDIN_BYTES_MAX).read_to_string(&mut text).map_err(|error| no_token(&error.to_string()))?;
    let token = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if token.is_empty() { Err(no_token("stdin is empty")) } else { Ok(token.into()) }
}

fn no_token(why: &str) -> Failure {
    Failure::usage(format!("no token: give --token, {VARIABLE}, or the token on stdin ({why})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_end_is_no_part_of_a_token_on_stdin() {
        for text in ["abc", "abc\n", "abc\r\n"] {
            assert_eq!(from_reader(text.as_bytes()).unwrap().as_str(), "abc");
        }
        assert_eq!(from_reader(&b"abc \n\n"[..]).unwrap().as_str(), "abc \n");
    }

    #[test]
    fn an_empty_stdin_is_a_mistake_of_usage() {
        for text in ["", "\n"] {
            assert_eq!(from_reader(text.as_bytes()).unwrap_err().exit.code(), 2);
        }
    }
}
