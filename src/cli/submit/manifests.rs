//! Manifests of Kubernetes.

use std::path::{Component, Path};

use super::arguments::{SubmitArgs, text_of};
use crate::cli::{Ended, Stop, note, print as put};
use anyhow::anyhow;
use regatta::submit::kubernetes::{Kubernetes, MOUNT, commands, manifests};

/// Prints the manifests, and says how they are applied.
///
/// # Errors
/// Whatever is wrong with the suite or the command line: exit code 2.
pub fn print(args: &SubmitArgs) -> Ended {
    let suite = args.suite()?;
    let of = &args.of_kubernetes;
    let shards = args.shards.ok_or_else(|| {
        Stop::Usage(anyhow!(
            "--kubernetes asks nothing of a cluster: say in how many shards, --shards N"
        ))
    })?;
    if args.show.json {
        return Err(Stop::Usage(anyhow!(
            "--json: manifests are YAML; what `regatta merge` answers as JSON is asked of it"
        )));
    }
    if args.measure.fresh {
        return Err(Stop::Usage(anyhow!(
            "--fresh: a task that is begun again would begin anew; name another folder of the \
             volume (--out), or delete the claim and apply again"
        )));
    }
    let out = match &args.measure.out {
        None => suite.name.clone(),
        Some(out) => text_of(out)?,
    };
    let path = Path::new(&out);
    let leaves = path.components().any(|part| part == Component::ParentDir);
    if leaves || path.is_absolute() && !path.starts_with(MOUNT) {
        return Err(Stop::Usage(anyhow!(
            "--out {out}: the volume is at {MOUNT}, and what is written elsewhere is lost with \
             its pod; name a folder of it, for example --out {}",
            suite.name
        )));
    }
    let gpus = args.gpus(&suite);
    let plan = args.plan(&suite, shards, out, gpus);
    let kubernetes = Kubernetes {
        image: of.image.clone().unwrap_or_default(),
        namespace: of.namespace.clone(),
        volume: of.volume.clone(),
        storage_class: of.storage_class.clone(),
    };
    let asked: Vec<String> = std::iter::once("regatta".to_owned())
        .chain(std::env::args().skip(1))
        .collect();
    put(manifests(&plan, &kubernetes, &asked))?;
    if !args.measure.quiet {
        note(format!(
            "with this output as FILE:\n  {}",
            commands(&plan, &kubernetes).join("\n  ")
        ));
    }
    Ok(0)
}
