//! Every kernel file, compiled with a real compiler; the rest of `regatta build` is in transcripts.

use std::collections::BTreeSet;

use crate::common::Place;
use regatta_cuda::kernels::contract;
use regatta_cuda::kernels::source::FILES;
use serde_json::Value;

#[test]
#[ignore = "needs CUDA's compilers"]
fn every_file_compiles_to_the_entry_points_of_its_contract() {
    let cuda = std::env::var("REGATTA_TEST_CUDA").expect("it names a CUDA toolkit");
    let place = Place::new();
    let words = ["build", "--arch", "sm_90a", "--json"];
    let (code, stdout, stderr) = place.ran_with(&words, &[("REGATTA_CUDA", &cuda)]);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    let builds = answer["builds"].as_array().unwrap();
    assert_eq!(builds.len(), FILES.len());
    for built in builds {
        let file = built["file"].as_str().unwrap();
        let entries = built["entries"].as_array().unwrap();
        let name = |entry: &Value| entry["name"].as_str().unwrap().to_owned();
        let compiled: BTreeSet<String> = entries.iter().map(name).collect();
        let stated = contract::entries(file).into_iter().map(|entry| entry.name);
        assert_eq!(compiled, stated.collect(), "{file}");
        for entry in entries {
            // What is launched on the architecture it was written for fits there.
            assert!(entry["blocks_per_sm"].as_u64().unwrap() > 0, "{entry}");
        }
    }
}
