//! `regatta build` with real compilers and with none.
//!
//! `REGATTA_TEST_CUDA` names a CUDA toolkit, such as the folder `nvidia/cu13` of a Python
//! that has `kernels/requirements-nvcc.txt`; CI makes one. None
//! needs a GPU.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::Place;
use regatta_cuda::kernels::contract;
use regatta_cuda::kernels::source::FILES;
use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A place whose regatta finds the compilers that CI has, or nothing.
struct Build {
    place: Place,
    cuda: PathBuf,
}

impl Build {
    fn new() -> Build {
        let cuda = std::env::var_os("REGATTA_TEST_CUDA");
        Build {
            place: Place::new(),
            cuda: cuda.expect("REGATTA_TEST_CUDA names a CUDA toolkit").into(),
        }
    }

    /// Exit code, standard output, standard error of `regatta build`.
    fn ran(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = self.place.regatta(&[&["build"], args].concat());
        ended(command.env("REGATTA_CUDA", &self.cuda))
    }

    fn json(&self, args: &[&str]) -> Value {
        let (code, stdout, stderr) = self.ran(&[args, &["--json"]].concat());
        assert_eq!(code, 0, "{stdout}\n{stderr}");
        serde_json::from_str(&stdout).unwrap()
    }

    /// A copy of a kernel file and the headers, to be changed.
    fn kernel(&self, name: &str, change: impl Fn(String) -> String) {
        for entry in fs::read_dir(Path::new(ROOT).join("kernels")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "cuh") {
                let to = self.place.path().join(path.file_name().unwrap());
                fs::copy(&path, to).unwrap();
            }
        }
        let text = fs::read_to_string(format!("{ROOT}/kernels/{name}.cu")).unwrap();
        self.place.write(&format!("{name}.cu"), &change(text));
    }

    /// The one image in the cache.
    fn image(&self) -> PathBuf {
        let folder = self.place.path().join("cache/regatta/kernels");
        let mut files = fs::read_dir(folder).unwrap();
        let path = files.next().unwrap().unwrap().path();
        assert!(files.next().is_none());
        path
    }
}

fn ended(command: &mut std::process::Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap_or(-1);
    (code, text(&output.stdout), text(&output.stderr))
}

#[test]
#[ignore = "needs CUDA's compilers"]
fn every_file_compiles_to_the_entry_points_of_its_contract() {
    let build = Build::new();
    let answer = build.json(&["--arch", "sm_90a"]);
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

#[test]
#[ignore = "needs CUDA's compilers"]
fn a_second_build_compiles_nothing_and_a_damaged_image_is_made_again() {
    let build = Build::new();
    let inputs = ["inputs", "--arch", "sm_90a"];
    let cached = |answer: &Value| answer["builds"][0]["cached"].as_bool().unwrap();
    let first = build.json(&inputs);
    assert!(!cached(&first));
    let second = build.json(&inputs);
    assert!(cached(&second));
    assert_eq!(
        first["builds"][0]["entries"],
        second["builds"][0]["entries"]
    );

    let image = build.image();
    let whole = fs::read(&image).unwrap();
    fs::write(&image, &whole[..whole.len() / 2]).unwrap();
    assert!(!cached(&build.json(&inputs)));
    assert!(cached(&build.json(&inputs)));
    assert!(!cached(
        &build.json(&[&inputs[..], &["--no-cache"]].concat())
    ));
}

#[test]
#[ignore = "needs CUDA's compilers"]
fn a_kernel_that_does_not_compile_is_shown_with_its_line() {
    let build = Build::new();
    build.kernel("inputs", |text| {
        text + "__device__ int wrong() { return missing; }\n"
    });
    let line = fs::read_to_string(build.place.path().join("inputs.cu"))
        .unwrap()
        .lines()
        .count();
    for compiler in ["nvrtc", "nvcc"] {
        let args = [
            "inputs.cu",
            "naive",
            "--arch",
            "sm_90a",
            "--compiler",
            compiler,
        ];
        let (code, stdout, stderr) = build.ran(&[&args[..], &["--save", "ledger.jsonl"]].concat());
        assert_eq!(code, 1, "{stderr}");
        let complaint = format!("inputs.cu({line}): error: identifier \"missing\" is undefined");
        assert!(stdout.contains(&complaint), "{stdout}");
        assert!(
            stdout.contains("naive_softmax_f32"),
            "the other file is shown: {stdout}"
        );
        assert!(!build.place.path().join("ledger.jsonl").exists());
    }
}

#[test]
#[ignore = "needs CUDA's compilers"]
fn a_ledger_holds_what_was_built_and_names_what_got_worse() {
    let build = Build::new();
    let nvcc = ["--arch", "sm_90a", "--compiler", "nvcc"];
    let (code, _, stderr) = build.ran(&[&["inputs", "--save", "ledger.jsonl"], &nvcc[..]].concat());
    assert_eq!(code, 0, "{stderr}");

    // Architecture and compiler are the ledger's.
    let against = ["--baseline", "ledger.jsonl"];
    let (code, stdout, stderr) = build.ran(&[&["inputs"], &against[..]].concat());
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(
        stdout.contains("passed  3 entry points compared"),
        "{stdout}"
    );

    // A shared array that is used makes each block larger, and one entry point goes.
    build.kernel("inputs", |text| {
        let used = "__shared__ int more[64]; more[threadIdx.x % 64] = f.batch; __syncthreads();\n\
                    if (more[(threadIdx.x + 1) % 64] != f.batch) return; fill<T>(f);";
        text.replace("fill<T>(f);", &used.replace('\n', " "))
            .replace("INPUTS(bf16", "// INPUTS(bf16")
    });
    let (code, stdout, stderr) = build.ran(&[&["inputs.cu"], &against[..]].concat());
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(stdout.contains("shared bytes 0 → 256"), "{stdout}");
    assert!(
        stdout.contains("Gone (1)\n  inputs_bf16 (inputs, sm_90a)"),
        "{stdout}"
    );

    // NVRTC is another compiler.
    let (code, _, stderr) = build.ran(&[&["inputs", "--compiler", "nvrtc"], &against[..]].concat());
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("the ledger is of nvcc"), "{stderr}");
}

#[test]
#[ignore = "needs CUDA's compilers"]
fn a_toolkit_may_be_named_from_here() {
    let mut build = Build::new();
    std::os::unix::fs::symlink(&build.cuda, build.place.path().join("cuda")).unwrap();
    build.cuda = "cuda".into();
    for compiler in ["nvrtc", "nvcc"] {
        let answer = build.json(&["inputs", "--arch", "sm_80", "--compiler", compiler]);
        assert_eq!(answer["builds"][0]["entries"].as_array().unwrap().len(), 3);
    }
}

#[test]
#[ignore = "needs CUDA's compilers"]
fn several_processes_build_the_same_at_once() {
    let build = Build::new();
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let one = || build.json(&["inputs", "--arch", "sm_80"]);
        let running: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!(
            answer["builds"][0]["entries"],
            answers[0]["builds"][0]["entries"]
        );
    }
    build.image();
}
