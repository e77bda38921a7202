//! `lockstead recover`.

use lockstead_core::{ClusterId, Fence, HoldOff};
use lockstead_raft::{NewLineage, RecoverError, Recovered};

use crate::args::RecoverArgs;
use crate::calls::{block_on, print};
use crate::exit::{Exit, Failure};
use crate::lineage;
use crate::serve::guard;
use crate::text::plain;

/// Makes a surviving node a cluster of its own.
pub(crate) fn run(args: &RecoverArgs) -> Result<Exit, Failure> {
    let confirmed = cluster_id(&args.confirm)?;
    guard::end_process_on_panic();
    block_on(async {
        let recovering = lockstead_raft::recover(&args.data_dir, confirmed, new_lineage(args));
        let recovered = guard::while_opening(&args.data_dir, recovering).await.map_err(failure)?;
        print(description(&recovered).as_bytes())?;
        Ok(Exit::Done)
    })
}

/// Capitals are digits as well.
fn cluster_id(text: &str) -> Result<ClusterId, Failure> {
    let id = text.to_ascii_lowercase().parse();
    id.map_err(|error| Failure::usage(format!("--confirm: {text:?}: {error}")))
}

fn new_lineage(args: &RecoverArgs) -> NewLineage {
    let said = if args.holders_are_dead { Some(HoldOff::HoldersAreDead) } else { args.hold_off.map(lineage::length) };
    let hold_off = said.unwrap_or(HoldOff::Standard { ttl_max_ms: args.ttl_max_ms });
    NewLineage { hold_off, fence_floor: args.fence_floor.map(Fence) }
}

fn description(recovered: &Recovered) -> String {
    let Recovered { node_id, api, begun, applied, left_behind } = recovered;
    let old: Vec<String> = left_behind.iter().map(|path| plain(&path.display().to_string())).collect();
    format!(
        "node {node_id} ({}) is the only member of the new cluster {}, from all {applied} entries of its log\n{}\nthe old \
         log is kept and not needed any more: {}",
        plain(api),
        begun.cluster_id,
        lineage::announcement(begun),
        old.join(", ")
    )
}

fn failure(error: RecoverError) -> Failure {
    match error {
        RecoverError::Open(error) => error.into(),
        RecoverError::Lineage(error) => Failure::usage(lineage::refusal(&error)),
        RecoverError::NoNode(_) | RecoverError::OtherCluster { .. } | RecoverError::NoMember(_) => {
            Failure::usage(error)
        }
        RecoverError::Log(_) => Failure::new(Exit::Damage, error),
        RecoverError::Identity(_) => Failure::new(Exit::Internal, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_is_taken_in_capitals_too() {
        let id = ClusterId(0x7b0d_00ff);
        assert_eq!(cluster_id(&id.to_string()).unwrap(), id);
        assert_eq!(cluster_id(&id.to_string().to_uppercase()).unwrap(), id);
        assert!(cluster_id("7B0D").unwrap_err().message.contains("--confirm: \"7B0D\""));
    }
}
