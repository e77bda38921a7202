//! Lengths of time on the command line.

use std::time::Duration;

use lockstead_client::Wait;

const UNITS: &str = "give a unit, as in 500ms, 30s, 5m, 1h or '1m 30s'";

/// Reads a length with units, in whole milliseconds. `0` needs no unit.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.parse::<f64>().is_ok() {
        return Err(format!("a bare number says no length: {UNITS}"));
    }
    let length = humantime::parse_duration(text).map_err(|error| format!("{error}: {UNITS}"))?;
    if length.subsec_nanos() % 1_000_000 == 0 { Ok(length) } else { Err("whole milliseconds are needed".to_owned()) }
}

/// Reads a length, or `forever`.
pub(crate) fn parse_wait(text: &str) -> Result<Wait, String> {
    match text.trim() {
        "forever" => Ok(Wait::Forever),
        length => parse(length).map(Wait::UpTo).map_err(|error| format!("{error}, or forever")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_with_units_are_taken() {
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn a_bare_number_is_refused_with_the_units() {
        for bare in ["30", "1.5", "-1", "1e3"] {
            let error = parse(bare).unwrap_err();
            assert!(error.contains("30s") && error.contains("500ms"), "{bare}: {error}");
        }
    }

    #[test]
    fn what_is_shorter_than_a_millisecond_does_not_become_the_default() {
        assert!(parse("500us").is_err());
        assert!(parse("1ms 1us").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for nonsense in ["", "s", "30 parsecs", "forever", "99999999999999999999y"] {
            assert!(parse(nonsense).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn a_wait_may_be_forever() {
        assert_eq!(parse_wait("forever"), Ok(Wait::Forever));
        assert_eq!(parse_wait("10s"), Ok(Wait::UpTo(Duration::from_secs(10))));
        assert!(parse_wait("10").unwrap_err().contains("forever"));
    }
}
