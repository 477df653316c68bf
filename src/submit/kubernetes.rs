//! Manifests of an indexed Job, of its volume and of the Job that merges, as `kubectl` takes them.

use serde_json::{Map, Value, json};

use super::{Plan, ROUNDS, command, label, yaml};
use crate::report::text::{one_line, shell_command, shell_quoted};

/// What Kubernetes is told beside the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubernetes {
    /// The image, which has regatta and what the suite's workers need.
    pub image: String,
    /// The namespace; `None`: that of whoever applies.
    pub namespace: Option<String>,
    /// How large the volume of runs is: `10Gi`.
    pub volume: String,
    /// Its class, which has to give a volume to several nodes at once.
    pub storage_class: Option<String>,
}

/// Where the volume is in each container.
pub const MOUNT: &str = "/reports";

/// The label by which one of the steps is applied.
const STEP: &str = "regatta/step";

/// All manifests as one file, with the commands that apply it at its head; `asked` is the command
/// line that this is made by.
pub fn manifests(plan: &Plan, kubernetes: &Kubernetes, asked: &[String]) -> String {
    let name = name(plan);
    let mut text = format!("# Made by: {}\n#\n", one_line(&shell_command(asked)));
    for line in [
        format!(
            "# {} shards of {}, measured by as many tasks, then judged together. With this file \
             as FILE:",
            plan.shards,
            one_line(&plan.suite)
        ),
        "#".to_owned(),
    ] {
        text += &format!("{line}\n");
    }
    for command in commands(plan, kubernetes) {
        text += &format!("#   {command}\n");
    }
    text +=
        "#\n# The last answers, and its exit code is the verdict's. Reports are in the volume.\n";
    for value in [
        claim(&name, kubernetes),
        measuring(&name, plan, kubernetes),
        merging(&name, plan, kubernetes),
    ] {
        text += &format!("---\n{}", yaml::document(&value));
    }
    text
}

/// The commands that measure, wait, judge and show the answer.
pub fn commands(plan: &Plan, kubernetes: &Kubernetes) -> Vec<String> {
    let name = name(plan);
    let of = match &kubernetes.namespace {
        Some(namespace) => format!("kubectl -n {}", shell_quoted(&one_line(namespace))),
        None => "kubectl".to_owned(),
    };
    vec![
        format!("{of} apply -f FILE -l {STEP}=measure"),
        format!("{of} wait --for=condition=complete --timeout=12h job/{name}"),
        format!("{of} apply -f FILE -l {STEP}=merge"),
        format!("{of} logs -f job/{name}-merge"),
    ]
}

/// The name of the Job, a label of DNS: one that is not the suite's own has a sum of it.
fn name(plan: &Plan) -> String {
    let label = label(&plan.suite);
    match label == plan.suite {
        true => format!("regatta-{label}"),
        false => format!(
            "regatta-{label}-{:08x}",
            crc32fast::hash(plan.suite.as_bytes())
        ),
    }
}

fn metadata(name: &str, step: &str, kubernetes: &Kubernetes) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": { "app.kubernetes.io/name": "regatta", STEP: step },
    });
    if let Some(namespace) = &kubernetes.namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

fn claim(name: &str, kubernetes: &Kubernetes) -> Value {
    let mut spec = json!({
        // Tasks run on several nodes at once.
        "accessModes": ["ReadWriteMany"],
        "resources": { "requests": { "storage": kubernetes.volume } },
    });
    if let Some(class) = &kubernetes.storage_class {
        spec["storageClassName"] = json!(class);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(name, "measure", kubernetes),
        "spec": spec,
    })
}

/// The Job whose task I measures shard I + 1.
fn measuring(name: &str, plan: &Plan, kubernetes: &Kubernetes) -> Value {
    let shards = plan.shards;
    let mut run = vec!["regatta".to_owned()];
    run.extend(plan.measure.iter().cloned());
    let more = [
        "--shard",
        &format!("env/{shards}"),
        "--out",
        &in_container(&plan.out),
    ];
    run.extend(more.map(str::to_owned));
    let run: Vec<String> = run.iter().map(|word| escaped(word)).collect();
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(name, "measure", kubernetes),
        "spec": {
            "completionMode": "Indexed",
            "completions": shards,
            "parallelism": shards,
            "backoffLimitPerIndex": plan.tries,
            "podFailurePolicy": { "rules": [
                // A node that is drained or taken away is no failure of the shard.
                { "action": "Ignore",
                  "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
                // The command line or a file is wrong: it will be so again.
                { "action": "FailIndex",
                  "onExitCodes": { "containerName": "regatta", "operator": "In", "values": [2] } },
            ] },
            "template": pod(name, plan, kubernetes, &run),
        },
    })
}

/// The Job that has what is left measured, and judges.
fn merging(name: &str, plan: &Plan, kubernetes: &Kubernetes) -> Value {
    let shards = plan.shards;
    let tries = plan.tries;
    let regatta = |words: &[&str], more: &[String]| {
        let words = words.iter().map(|&word| word.to_owned());
        let words: Vec<String> = words.chain(more.iter().cloned()).collect();
        escaped(&command("regatta", &words))
    };
    let folder = in_container(&plan.out);
    let into = in_container(&plan.shards_folder());
    let next = regatta(&["next", &into], &plan.next);
    let merge = regatta(&["merge", &into, "--out", &folder], &plan.merge);
    let measure = regatta(&[], &plan.measure);
    let folder = escaped(&shell_quoted(&folder));
    let script = format!(
        r#"# Not begun, killed in the middle, or owing fresh invocations: measured on, here.
died=0 round=0
while left=$({next}) && [ -n "$left" ] && [ "$round" -lt {ROUNDS} ]; do
  round=$((round + 1)) failed=0
  for shard in $left; do
    {measure} \
      --shard "$shard/{shards}" --out {folder} || failed=1
  done
  died=$((died + failed))
  [ "$failed" = 0 ] || [ "$died" -lt {tries} ] || break
done
exec {merge}
"#
    );
    let script = ["sh", "-c", &script].map(str::to_owned);
    let name_of_merge = format!("{name}-merge");
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(&name_of_merge, "merge", kubernetes),
        "spec": {
            // What it exits with is the verdict: again, it would be the same.
            "backoffLimit": 0,
            "template": pod(name, plan, kubernetes, &script),
        },
    })
}

/// A pod that runs a command with the volume of this claim.
fn pod(claim: &str, plan: &Plan, kubernetes: &Kubernetes, run: &[String]) -> Value {
    let mut container = json!({
        "name": "regatta",
        "image": kubernetes.image,
        "command": run,
        "volumeMounts": [{ "name": "reports", "mountPath": MOUNT }],
    });
    let mut limits = Map::new();
    if plan.gpus > 0 {
        limits.insert("nvidia.com/gpu".to_owned(), json!(plan.gpus));
    }
    if let Some(cores) = plan.cores {
        limits.insert("cpu".to_owned(), json!(cores.to_string()));
    }
    if !limits.is_empty() {
        container["resources"] = json!({ "limits": limits });
    }
    json!({ "spec": {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{ "name": "reports", "persistentVolumeClaim": { "claimName": claim } }],
    } })
}

/// A path within the volume.
fn in_container(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{MOUNT}/{path}"),
    }
}

/// Text of which Kubernetes makes what it was: it looks for `$(NAME)` before anybody else, and
/// makes `$` of `$$`.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(suite: &str) -> Plan {
        Plan {
            suite: suite.to_owned(),
            shards: 4,
            measure: ["gate", "native", "--filter", "$(HOME) it's: *"]
                .map(str::to_owned)
                .into(),
            next: Vec::new(),
            merge: vec!["--strict".to_owned()],
            out: "native".to_owned(),
            tries: 3,
            gpus: 1,
            cores: None,
        }
    }

    #[test]
    fn manifests_are_read_by_a_person() {
        let kubernetes = Kubernetes {
            image: "registry.example.org/regatta:1".to_owned(),
            namespace: Some("bench".to_owned()),
            volume: "10Gi".to_owned(),
            storage_class: Some("nfs".to_owned()),
        };
        let asked = ["regatta", "submit", "--kubernetes", "native"].map(str::to_owned);
        insta::assert_snapshot!(manifests(&plan("native"), &kubernetes, &asked));
    }

    #[test]
    fn names_are_labels_of_dns_and_apart() {
        let named = |suite| name(&plan(suite));
        assert_eq!(named("native"), "regatta-native");
        let long = "long".repeat(40);
        for odd in ["Native", "a.b", "a-b", "ü: {x}\n", &long] {
            let name = named(odd);
            let label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            // With `-merge`, and a number behind it, it is a host name.
            assert!(name.len() <= 50 && name.chars().all(label), "{name}");
        }
        assert_ne!(named("a.b"), named("a-b"));
    }
}
