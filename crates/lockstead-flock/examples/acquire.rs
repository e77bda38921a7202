//! Takes a lock, shows who holds it, and holds it until a line comes in. Run it twice:
//!
//! ```sh
//! cargo run -p lockstead-flock --example acquire -- /tmp/deploy.lock alice
//! cargo run -p lockstead-flock --example acquire -- /tmp/deploy.lock bob
//! ```

use std::time::Duration;

use lockstead_flock::{AcquireError, AcquireOptions, Owner, acquire, read_metadata};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(id)) = (arguments.next(), arguments.next()) else {
        return Err("usage: acquire PATH ID".into());
    };
    let owner = Owner { id, kind: "example".into(), ..Owner::default() };
    match acquire(&path, AcquireOptions { wait_timeout: Duration::from_secs(2), owner }) {
        Ok(lock) => {
            println!("held under fence {} by {}", lock.fence(), read_metadata(&path));
            if let Some(warning) = lock.warning() {
                eprintln!("careful: {warning}");
            }
            println!("press return to release");
            std::io::stdin().read_line(&mut String::new())?;
            Ok(lock.release()?)
        }
        Err(AcquireError::LockHeld { holder, waited, .. }) => {
            println!("still held after {} ms by {holder}", waited.as_millis());
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
