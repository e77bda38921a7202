//! One try for a lock: both files, in order, and the check that they are still where they were.

use std::io;

use rustix::io::Errno;

use crate::AcquireError;
use crate::fence::{self, RaiseError};
use crate::flocked::Flocked;
use crate::home::Home;
use crate::spot::Spot;

/// So often a try that decided nothing is repeated at once.
const REPLACED_MAX: usize = 100;

/// What a try gave.
#[derive(Debug)]
pub(crate) enum Try {
    /// Both files are locked, and their names still lead to them.
    Locked(Taken),
    /// Somebody else has one.
    Held,
    /// A name led elsewhere after the file was locked: nothing is decided.
    Replaced,
}

/// A lock just taken. `file` is unlocked before `guard`, as it was locked after it.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) file: Flocked,
    pub(crate) guard: Flocked,
    pub(crate) home: Home,
    pub(crate) fence: u64,
}

/// Tries once, which takes as many tries as somebody replaces files in the meantime. Never blocks.
pub(crate) fn attempt(spot: &Spot) -> Result<Try, AcquireError> {
    for _ in 0..REPLACED_MAX {
        match once(spot)? {
            Try::Replaced => {}
            decided => return Ok(decided),
        }
    }
    Ok(Try::Replaced)
}

fn once(spot: &Spot) -> Result<Try, AcquireError> {
    let home = Home::open(spot)?;
    // The guard comes first, so that two who try at once can't each have one of the files.
    let Some(guard) = home.try_lock(&spot.guard_name)? else { return Ok(Try::Held) };
    let Some(file) = home.try_lock(&spot.file_name)? else { return Ok(Try::Held) };
    settle(spot, home, guard, file)
}

/// Both are locked: it counts if they are where others look for them.
fn settle(spot: &Spot, home: Home, guard: Flocked, file: Flocked) -> Result<Try, AcquireError> {
    let is_ours = is_intact(spot, &home, &guard, &file).map_err(|errno| AcquireError::from_file(&spot.path, errno))?;
    if !is_ours {
        return Ok(Try::Replaced);
    }
    let fence = fence::raise([file.file(), guard.file()], fence::wall_us()).map_err(|error| refusal(spot, error))?;
    Ok(Try::Locked(Taken { file, guard, home, fence }))
}

/// Whether both names, and that of the directory, lead to what is locked.
pub(crate) fn is_intact(spot: &Spot, home: &Home, guard: &Flocked, file: &Flocked) -> Result<bool, Errno> {
    Ok(home.leads_to(&spot.guard_name, guard)? && home.leads_to(&spot.file_name, file)? && home.is_in_place()?)
}

fn refusal(spot: &Spot, error: RaiseError) -> AcquireError {
    let path = spot.path.clone();
    match error {
        RaiseError::Exhausted => AcquireError::FenceExhausted { path },
        RaiseError::Io(error) => match Errno::from_io_error(&error) {
            Some(errno) => AcquireError::from_file(&path, errno),
            None => AcquireError::Io { path, source: io::Error::other(error) },
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// What a try gives if `happens` in the directory after it opened and locked its files.
    fn check(what: &str, happens: impl Fn(&Path) -> io::Result<()>, is_locked: bool) {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let spot = Spot::of_path(&dir.join("x")).unwrap();
        let home = Home::open(&spot).unwrap();
        let guard = home.try_lock(&spot.guard_name).unwrap().unwrap();
        let file = home.try_lock(&spot.file_name).unwrap().unwrap();
        happens(&dir).unwrap();
        let settled = settle(&spot, home, guard, file).unwrap();
        assert_eq!(matches!(settled, Try::Locked(_)), is_locked, "{what}: {settled:?}");
        assert_eq!(matches!(settled, Try::Replaced), !is_locked, "{what}: {settled:?}");
    }

    #[test]
    fn a_try_counts_only_if_nothing_was_replaced_in_the_meantime() {
        check("nothing", |_| Ok(()), true);
        check("the file deleted", |dir| fs::remove_file(dir.join("x")), false);
        check("the guard deleted", |dir| fs::remove_file(dir.join(".x.guard")), false);
        check(
            "the file made anew",
            |dir| fs::write(dir.join("new"), "").and(fs::rename(dir.join("new"), dir.join("x"))),
            false,
        );
        check("the file moved", |dir| fs::rename(dir.join("x"), dir.join("y")), false);
        check("the directory moved", |dir| fs::rename(dir, dir.with_file_name("moved")), false);
        let remade = |dir: &Path| fs::rename(dir, dir.with_file_name("moved")).and(fs::create_dir(dir));
        check("the directory made anew", remade, false);
    }
}
