//! Locks known by names in one directory, and work guarded by a fence.
//!
//! ```sh
//! cargo run -p lockstead-flock --example lock_dir
//! ```

use lockstead_flock::{AcquireError, AcquireOptions, LockDir};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = LockDir::open(std::env::temp_dir().join("lockstead-flock-example"))?;
    let one = locks.acquire("reports/2026 (draft)", AcquireOptions::default())?;
    println!("{} under fence {}", one.path().display(), one.fence());

    // Another name is another lock; the same name is refused, by another thread as by another process.
    let _other = locks.acquire("reports/2026 (Draft)", AcquireOptions::default())?;
    let again = std::thread::scope(|scope| {
        scope.spawn(|| locks.acquire("reports/2026 (draft)", AcquireOptions::default())).join()
    });
    match again {
        Ok(Err(AcquireError::LockHeld { holder, .. })) => println!("refused: held by {holder}"),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}
