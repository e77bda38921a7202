//! `lockstead backup`.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use lockstead_client::CallError;
use lockstead_raft::{Backup, BackupMember};
use serde_json::{Value, json};

use crate::args::{BackupCommand, BackupInspectArgs, BackupSaveArgs};
use crate::calls::{block_on, client, print, print_refusal, until_signal};
use crate::exit::{Exit, Failure};
use crate::text::{length_ms, plain};

/// Takes a backup, or shows what one holds.
pub(crate) fn run(command: BackupCommand) -> Result<Exit, Failure> {
    match command {
        BackupCommand::Save(args) => block_on(save(args)),
        BackupCommand::Inspect(args) => inspect(&args),
    }
}

/// Reads a backup from a file.
pub(crate) fn read(file: &Path) -> Result<Backup, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Backup::decode(&bytes).map_err(|error| format!("{}: {error}", file.display()))
}

async fn save(args: BackupSaveArgs) -> Result<Exit, Failure> {
    let BackupSaveArgs { file, force, reach } = args;
    if !force && file.exists() {
        return Err(exists(&file));
    }
    let client = client(&reach);
    let call = async { client.backup().await.map_err(|error| print_refusal(error, &reach)) };
    let bytes = until_signal(call).await?;
    let backup = Backup::decode(&bytes).map_err(|error| {
        let endpoint = reach.endpoints.first().map(ToString::to_string).unwrap_or_default();
        Failure::from(CallError::NotUnderstood { endpoint, why: error.to_string() })
    })?;
    let may_replace = if force { Replace::Yes } else { Replace::No };
    write(&file, &bytes, may_replace).map_err(|error| not_written(&file, &error))?;
    show(&backup, reach.json)?;
    Ok(Exit::Done)
}

/// Whether a file that is there may be replaced.
#[derive(Clone, Copy)]
enum Replace {
    Yes,
    No,
}

/// Writes a file whole and durably, under a temporary name first.
fn write(file: &Path, bytes: &[u8], may_replace: Replace) -> io::Result<()> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = tempfile::Builder::new().prefix(".lockstead-backup-").tempfile_in(dir)?;
    temporary.write_all(bytes)?;
    temporary.as_file().sync_all()?;
    match may_replace {
        Replace::Yes => temporary.persist(file)?,
        Replace::No => temporary.persist_noclobber(file)?,
    };
    File::open(dir)?.sync_all()
}

fn not_written(file: &Path, error: &io::Error) -> Failure {
    let message = format!("{}: {error}", file.display());
    match error.kind() {
        io::ErrorKind::AlreadyExists => exists(file),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
            Failure::usage(message)
        }
        _ => Failure::new(Exit::Internal, message),
    }
}

fn exists(file: &Path) -> Failure {
    Failure::usage(format!("{} is there already; --force overwrites it", file.display()))
}

fn inspect(args: &BackupInspectArgs) -> Result<Exit, Failure> {
    let backup = read(&args.file).map_err(Failure::usage)?;
    show(&backup, args.json)?;
    Ok(Exit::Done)
}

fn show(backup: &Backup, as_json: bool) -> Result<(), Failure> {
    let text = if as_json { json_of(backup).to_string() } else { description(backup) };
    print(text.as_bytes())
}

fn json_of(backup: &Backup) -> Value {
    let residue = &backup.residue;
    let member = |member: &BackupMember| {
        let role = role(member);
        json!({"id": member.id, "role": role, "api": member.api, "peer": member.peer})
    };
    json!({
        "cluster_id": backup.cluster_id.to_string(),
        "taken_at": taken_at(backup),
        "index": backup.index,
        "term": backup.term,
        "built_at": backup.built_at,
        "lease_ms": residue.time.0,
        "last_fence": residue.last_fence.0,
        "ttl_max_ms": residue.ttl_max_ms,
        "delay_max_ms": residue.delay_max_ms,
        "hold_off_ms": residue.no_grant_before.ms_since(residue.time),
        "retired": residue.retired,
        "members": backup.members.iter().map(member).collect::<Vec<_>>(),
    })
}

fn description(backup: &Backup) -> String {
    let residue = &backup.residue;
    let members = backup.members.iter().map(|member| {
        let (api, peer) = (plain(&member.api), plain(&member.peer));
        format!("node {} ({}), {api}, peers {peer}", member.id, role(member))
    });
    let rows = [
        ("cluster", backup.cluster_id.to_string()),
        ("taken at", taken_at(backup)),
        ("log", format!("index {} of term {}, built at {}", backup.index, backup.term, backup.built_at)),
        ("lease time", length_ms(residue.time.0)),
        ("last fence", residue.last_fence.0.to_string()),
        ("longest ttl", length_ms(residue.ttl_max_ms)),
        ("longest delay", length_ms(residue.delay_max_ms)),
        ("hold-off", length_ms(residue.no_grant_before.ms_since(residue.time))),
        ("retired", residue.retired.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    ];
    let rows = rows.map(|(name, value)| (name, value)).into_iter().chain(members.map(|member| ("member", member)));
    let lines: Vec<String> = rows.map(|(name, value)| format!("{name:14} {value}").trim_end().to_owned()).collect();
    lines.join("\n")
}

fn role(member: &BackupMember) -> &'static str {
    if member.is_voter { "voter" } else { "learner" }
}

fn taken_at(backup: &Backup) -> String {
    // The last moment that RFC 3339 can write, should the clock have been wild.
    let unix_ms = backup.taken_at.0.min(253_402_300_799_999);
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(unix_ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_if_that_was_said_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("b");
        write(&file, b"one", Replace::No).unwrap();
        let refused = write(&file, b"two", Replace::No).unwrap_err();
        assert_eq!(not_written(&file, &refused).exit, Exit::Usage);
        assert_eq!(std::fs::read(&file).unwrap(), b"one");
        write(&file, b"three", Replace::Yes).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"three");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_backup_is_shown_with_all_it_holds() {
        let backup = Backup {
            cluster_id: lockstead_core::ClusterId(0x2a),
            taken_at: lockstead_core::WallTime(1_709_210_096_007),
            index: 5,
            term: 6,
            built_at: 7,
            residue: lockstead_core::Residue { retired: [4, 9].into(), ..Default::default() },
            members: vec![BackupMember { id: 1, api: "a:1".into(), peer: "p\u{1b}:2".into(), is_voter: true }],
        };
        let text = description(&backup);
        assert!(text.contains("cluster        0000000000000000000000000000002a\n"), "{text}");
        assert!(text.contains("taken at       2024-02-29T12:34:56.007Z\n"), "{text}");
        assert!(text.contains("retired        4, 9\n"), "{text}");
        assert!(text.ends_with("member         node 1 (voter), a:1, peers p\\u{1b}:2"), "{text}");
        assert_eq!(json_of(&backup)["members"][0]["role"], "voter");
    }
}
