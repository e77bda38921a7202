//! Random bits of the operating system.

/// One random byte, or 0 if the system gives none: good enough to spread retries.
pub(crate) fn byte() -> u8 {
    let mut byte = [0];
    match getrandom::fill(&mut byte) {
        Ok(()) => byte[0],
        Err(_) => 0,
    }
}

/// 128 random bits as 32 hex digits.
pub(crate) fn request_id() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
