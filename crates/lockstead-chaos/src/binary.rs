//! The `lockstead` that is run.

use std::env::consts::EXE_SUFFIX;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The `lockstead` in the directory that this program was built into. It is built if it is not there.
///
/// # Errors
/// When it can neither be found nor built.
pub fn beside_us() -> io::Result<PathBuf> {
    let binary = place()?;
    if binary.is_file() { Ok(binary) } else { build() }
}

/// Builds `lockstead` beside this program, in its profile, if what is there is missing or old.
///
/// # Errors
/// When there is no `cargo`, or when it fails.
pub fn build() -> io::Result<PathBuf> {
    let binary = place()?;
    let target = binary.parent().and_then(Path::parent).ok_or_else(|| io::Error::other("no place for a build"))?;
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "lockstead", "--bin", "lockstead"]);
    cargo.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(target);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let status = cargo.status()?;
    if status.success() && binary.is_file() { Ok(binary) } else { Err(io::Error::other("lockstead cannot be built")) }
}

/// Where it is: beside this program, or one above for a test, which lies in `deps`.
fn place() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let own_dir = own.parent().unwrap_or(Path::new("."));
    let dir = if own_dir.ends_with("deps") { own_dir.parent().unwrap_or(own_dir) } else { own_dir };
    Ok(dir.join(format!("lockstead{EXE_SUFFIX}")))
}
