//! Which file systems are known to carry `flock` over a network, or not.

use std::fmt;
use std::fs::File;

/// The lock is held, but something about it should be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The file is on a network file system: whether other machines see the lock, and whether it survives a lost
    /// connection, depends on its server and its mount options.
    NetworkFileSystem {
        /// Its kind, such as `nfs`.
        kind: &'static str,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::NetworkFileSystem { kind } = self;
        write!(out, "the lock file is on a network file system ({kind}), where flock may not exclude other machines")
    }
}

/// `linux/magic.h` and the modules' own headers. FUSE is among them, since sshfs and its like can't be told apart.
const NETWORK_FILE_SYSTEMS: [(u32, &str); 17] = [
    (0x6969, "nfs"),
    (0x517B, "smb"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "ceph"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x564C, "ncp"),
    (0x0BD0_0BD0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636F, "ocfs2"),
    (0x786F_4256, "vboxsf"),
];

/// What should be known of the file system of `file`; nothing if it can't be found out.
#[cfg(target_os = "linux")]
pub(crate) fn warning(file: &File) -> Option<Warning> {
    let stat = rustix::fs::fstatfs(file).ok()?;
    // The kernel's numbers have 32 bits, in a field of another width and sign on each architecture.
    warning_about(stat.f_type.to_le_bytes().first_chunk().copied().map(u32::from_le_bytes)?)
}

/// Elsewhere file systems have no such numbers.
#[cfg(not(target_os = "linux"))]
pub(crate) fn warning(_file: &File) -> Option<Warning> {
    None
}

fn warning_about(magic: u32) -> Option<Warning> {
    let (_, kind) = NETWORK_FILE_SYSTEMS.iter().find(|(known, _)| *known == magic)?;
    Some(Warning::NetworkFileSystem { kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_warned_about_and_local_ones_are_not() {
        assert_eq!(warning_about(0x6969), Some(Warning::NetworkFileSystem { kind: "nfs" }));
        assert_eq!(warning_about(0xFF53_4D42), Some(Warning::NetworkFileSystem { kind: "cifs" }));
        for (magic, name) in [(0xEF53, "ext4"), (0x5846_5342, "xfs"), (0x9123_683E, "btrfs"), (0x0102_1994, "tmpfs")] {
            assert_eq!(warning_about(magic), None, "{name}");
        }
    }

    #[test]
    fn the_kind_of_a_real_file_system_is_read() {
        // procfs is everywhere on Linux and has a number of its own.
        let file = File::open("/proc/self/status").unwrap();
        let stat = rustix::fs::fstatfs(&file).unwrap();
        assert_eq!(stat.f_type.to_le_bytes()[..4], 0x9FA0_u32.to_le_bytes());
        assert_eq!(warning(&file), None);
    }
}
