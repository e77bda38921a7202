//! What is said about a restore.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use lockstead_core::{Fence, HoldOff, WallTime};
use lockstead_raft::{Backup, NewLineage, has_node};

use super::ServeOptions;
use super::check::{named, whole};
use crate::{backup, duration, lineage};

/// A backup, and how to go on from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restoring {
    /// Or why it does not do, which is nothing to a node that has gone on from it already.
    pub(crate) backup: Result<Backup, String>,
    pub(crate) lineage: NewLineage,
}

/// Reads the backup. One that does not do is refused before anything is written, unless the directory has been a
/// node's, which may need none any more.
pub(super) fn restoring(options: &ServeOptions, ttl_max_ms: u64) -> Result<Option<Restoring>, String> {
    let holders_are_dead = options.holders_are_dead.filter(|dead| *dead);
    let Some(file) = &options.restore else {
        let said = [
            ("holders_are_dead", holders_are_dead.is_some()),
            ("hold_off", options.hold_off.is_some()),
            ("fence_floor", options.fence_floor.is_some()),
        ];
        let alone = said.into_iter().find_map(|(field, is_said)| is_said.then_some(field));
        return alone.map_or(Ok(None), |field| Err(format!("{}: only with --restore", named(field))));
    };
    let hold_off = match (holders_are_dead, options.hold_off.as_deref()) {
        (Some(_), Some(_)) => return Err(format!("{}: not together with --holders-are-dead", named("hold_off"))),
        (Some(_), None) => HoldOff::HoldersAreDead,
        (None, Some(said)) => {
            let length = duration::parse(said).map_err(|error| format!("{}: {said:?}: {error}", named("hold_off")))?;
            lineage::length(length)
        }
        (None, None) => HoldOff::Standard { ttl_max_ms },
    };
    let floor_max = i64::try_from(lineage::FENCE_FLOOR_MAX - 1).unwrap_or(i64::MAX);
    let fence_floor = options.fence_floor.map(|floor| whole("fence_floor", floor, 0..=floor_max)).transpose()?;
    let lineage = NewLineage { hold_off, fence_floor: fence_floor.map(Fence) };
    match usable(file, lineage) {
        Err(why) if !options.data_dir.as_deref().is_some_and(has_node) => Err(why),
        backup => Ok(Some(Restoring { backup, lineage })),
    }
}

fn usable(file: &Path, lineage: NewLineage) -> Result<Backup, String> {
    let backup = backup::read(file).map_err(|error| format!("{}: {error}", named("restore")))?;
    match lineage.residue(&backup.residue, backup.taken_at, wall()) {
        Ok(_) => Ok(backup),
        Err(error) => Err(format!("{}: {}", named("restore"), lineage::refusal(&error))),
    }
}

fn wall() -> WallTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
