//! Declared operators through the program: the examples pass as they are, a slip in them fails a gate,
//! and a declaration that cannot be checked is refused before anything is measured.

use std::fs;
use std::path::Path;

use crate::common::{Place, copy, python_with_numpy};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

/// One invocation of few samples: these tests look at results and not at times.
const SHORT: &str = "\n[measure]\ninvocations = 1\nsamples = 5\nbudget_ms = 20\n";

/// A committed copy of an example.
fn example(name: &str) -> Place {
    let place = Place::new();
    copy(&Path::new(EXAMPLES).join(name), place.path());
    let suite = format!("{name}.toml");
    let text = fs::read_to_string(place.path().join(&suite)).unwrap();
    place.write(&suite, &format!("{text}{SHORT}"));
    place.committed()
}

fn ran(place: &Place, args: &[&str]) -> (i32, String) {
    let mut command = place.regatta(args);
    let output = command
        .env("REGATTA_PYTHON", python_with_numpy())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    (output.status.code().unwrap_or(-1), text)
}

/// Runs regatta, which ends with this code and prints these words among the text that it returns.
#[track_caller]
fn says(place: &Place, args: &[&str], code: i32, words: &str) -> String {
    let (ended, text) = ran(place, args);
    assert_eq!(ended, code, "{text}");
    assert!(text.contains(words), "`{words}` is not in: {text}");
    text
}

/// A small case of each built-in operator.
const BUILT_IN: [(&str, &str); 13] = [
    ("rmsnorm", "rows = 16, width = 64"),
    ("layernorm", "rows = 16, width = 64"),
    ("swiglu", "rows = 16, width = 64"),
    ("rope", "seq = 16, heads = 2, head_dim = 32"),
    ("cross_entropy", "rows = 16, vocab = 128"),
    ("matmul_gelu", "m = 16, n = 32, k = 64"),
    ("matmul_gelu_tanh", "m = 16, n = 32, k = 64"),
    (
        "attention_softcap",
        "heads = 4, kv_heads = 2, seq_q = [1, 16], seq_k = 64, head_dim = 32",
    ),
    (
        "attention_sinks",
        "heads = 4, kv_heads = 2, seq_q = [1, 16], seq_k = 64, head_dim = 32",
    ),
    (
        "attention_bias",
        "heads = 4, kv_heads = 2, seq_q = [1, 16], seq_k = 64, head_dim = 32",
    ),
    ("mla_decode", "heads = 4, seq = 64"),
    (
        "paged_decode",
        "heads = 4, kv_heads = 2, pages = 8, head_dim = 32",
    ),
    ("gated_delta", "seq = 32, width = 32, width_v = 32"),
];

/// Those with gradients.
const DIFFERENTIATED: [&str; 5] = ["rmsnorm", "layernorm", "swiglu", "rope", "cross_entropy"];

#[test]
#[ignore = "needs NumPy"]
fn each_input_of_a_built_in_operator_moves_its_results() {
    let place = Place::new();
    let sweeps = BUILT_IN.map(|(name, axes)| {
        let dtypes = "dtype = [\"f32\", \"bf16\"]";
        let direction = if DIFFERENTIATED.contains(&name) {
            ", direction = [\"forward\", \"backward\"]"
        } else {
            ""
        };
        format!(
            "{{ operator = \"{name}\", variants = \"mine/{name}\", {axes}, {dtypes}{direction} }},\n"
        )
    });
    let sweep = sweeps.concat();
    place.write(
        "all.toml",
        &format!("workers.mine = \"all.py\"\nsweep = [\n{sweep}]\n"),
    );
    place.write("all.py", "");
    let words = "is the gradient that finite differences give";
    let text = says(&place, &["worker", "check", "./all.toml"], 0, words);
    let gradients = text.matches(words);
    assert_eq!(gradients.count(), 2 * 9, "{text}");
    let (_, text) = ran(&place, &["list", "--json"]);
    for name in BUILT_IN.map(|(name, _)| name) {
        assert!(text.contains(&format!("\"regatta:{name}\"")), "{name}");
    }
    assert_eq!(text.matches("\"regatta:").count(), BUILT_IN.len());
}

#[test]
#[ignore = "needs NumPy"]
fn a_slip_in_a_users_operator_fails_the_gate() {
    for (name, from, to, words) in [
        (
            "rmsnorm",
            "+ eps)",
            "+ 2 * eps)",
            "compared with ./reference.py:rmsnorm in float64",
        ),
        (
            "matmul_gelu",
            "x = a @ b",
            "x = (a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32)",
            "compared with the base's on the same inputs",
        ),
        (
            "gated_delta",
            "s *= np.exp(g[t])",
            "s *= np.exp(g[t - 1])",
            "compared with ./reference.py:gated_delta in float64",
        ),
    ] {
        let place = example(name);
        place.edit(&format!("{name}.py"), from, to);
        let gate = ["gate", &format!("./{name}.toml"), "--base", "git:HEAD"];
        let text = says(&place, &gate, 1, "wrong result");
        assert!(text.contains(words), "{name}: {text}");
    }
}

#[test]
#[ignore = "needs NumPy"]
fn the_examples_are_right_and_their_inputs_matter() {
    for name in ["rmsnorm", "gated_delta"] {
        let place = example(name);
        let suite = format!("./{name}.toml");
        says(&place, &["worker", "check", &suite], 0, "");
        let (_, text) = ran(&place, &["run", &suite]);
        assert!(!text.contains("wrong result"), "{name}: {text}");
        let words = format!("results of {name} compared with ./reference.py:{name} in float64");
        assert!(text.contains(&words), "{name}: {text}");
    }
    let place = example("matmul_gelu");
    let (_, text) = ran(&place, &["run", "./matmul_gelu.toml"]);
    assert!(
        text.contains("results of matmul_gelu were not checked"),
        "{text}"
    );
    let place = example("decode");
    says(&place, &["worker", "check", "./decode.toml"], 0, "");
}

#[test]
#[ignore = "needs NumPy"]
fn what_cannot_be_checked_is_refused_before_it_is_measured() {
    for (file, from, to, words) in [
        (
            "rmsnorm.toml",
            "rows, width\", draw",
            "rows, wdith\", draw",
            "`wdith` is no axis of the operator; did you mean `width`?",
        ),
        (
            "reference.py",
            "def rmsnorm",
            "import rmsnorm as tested\n\n\ndef rmsnorm",
            "write the reference in a file of its own that imports no code under test",
        ),
        (
            "reference.py",
            "weight, eps",
            "weight, eps, bias",
            ".reference = \"./reference.py:rmsnorm\" cannot be called: it takes an argument `bias`",
        ),
        (
            "rmsnorm.py",
            "def rmsnorm(x, weight, eps)",
            "def rmsnorm(x, scale, eps)",
            "it takes an argument `scale`, and the operator's inputs and scalars are",
        ),
        (
            "rmsnorm.toml",
            "normal(0.001)",
            "log-decay(0, 1)",
            "makes NaN: it needs 0 < low <= high",
        ),
    ] {
        let place = example("rmsnorm");
        place.edit(file, from, to);
        says(&place, &["run", "./rmsnorm.toml"], 2, words);
    }
    let place = example("rmsnorm");
    place.edit("rmsnorm.toml", "normal(0.001)", "normal");
    let words = "a kernel that ignores `eps` would pass";
    says(&place, &["worker", "check", "./rmsnorm.toml"], 1, words);
    let place = example("rmsnorm");
    place.edit("reference.py", "return x /", "return \"no array\" #");
    place.edit("reference.py", "def rmsnorm", "def rmsnorm2d");
    place.edit("rmsnorm.toml", "py:rmsnorm", "py:rmsnorm2d");
    // The name of an operator is shown, though a drawn word may have such a form.
    place.edit("rmsnorm.toml", "operators.rmsnorm", "operators.rmsnorm2d");
    place.edit("rmsnorm.toml", "= \"rmsnorm\"", "= \"rmsnorm2d\"");
    let words = "reference.py:rmsnorm2d returned y as str; return an array";
    says(&place, &["run", "./rmsnorm.toml"], 3, words);
}

/// A function of JAX arrays, which JAX differentiates.
const ON_JAX: &str = "import jax\n\n\ndef rmsnorm(x: jax.Array, weight, eps):\n    \
                      return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * weight\n";

const SWEEP: &str = "workers.mine = \"mine.py\"\nsweep = [{ operator = \"rmsnorm\", \
                     variants = \"mine/rmsnorm\", rows = 64, width = 32, \
                     direction = [\"forward\", \"backward\", \"both\"] }]\n";

/// A committed suite and the file of its function.
fn committed(code: &str, suite: &str) -> Place {
    let place = Place::new();
    place.write("mine.py", code);
    place.write("mine.toml", &format!("{suite}{SHORT}"));
    place.committed()
}

#[test]
#[ignore = "needs JAX"]
fn gradients_are_jaxs_and_a_wrong_one_fails_the_gate() {
    let place = committed(ON_JAX, SWEEP);
    let words = "3 measured; results of rmsnorm compared with regatta:rmsnorm in float64";
    says(&place, &["run", "./mine.toml"], 0, words);
    place.edit("mine.py", "* weight", "* jax.lax.stop_gradient(weight)");
    let (code, text) = ran(
        &place,
        &[
            "gate",
            "./mine.toml",
            "--base",
            "git:HEAD",
            "--filter",
            "*direction*",
        ],
    );
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("dweight: relative L2 error 1.0e0"), "{text}");
    assert!(text.contains("2 error"), "{text}");
}

#[test]
#[ignore = "needs NumPy"]
fn gradients_that_cannot_be_had_are_refused_before_they_are_measured() {
    let on_numpy = "def rmsnorm(x, weight, eps):\n    return x\n";
    let words = "it takes x, weight, eps, and NumPy and CuPy differentiate no function: add `dout`";
    let place = committed(on_numpy, SWEEP);
    says(&place, &["run", "./mine.toml"], 2, words);
    let place = example("rmsnorm");
    place.edit(
        "rmsnorm.toml",
        "variants",
        "direction = \"backward\", variants",
    );
    place.edit("rmsnorm.toml", "outputs", "gradients = \"x\"\noutputs");
    place.edit(
        "rmsnorm.py",
        "def rmsnorm(x, weight, eps",
        "def rmsnorm(x, weight, eps, dy",
    );
    let words = "has no function `rmsnorm_gradients`: it takes the arguments of `rmsnorm`";
    says(&place, &["run", "./rmsnorm.toml"], 2, words);
}

/// A product of numbers of 8 bits, each row and each column with a scale of its own.
const QUANTISED: &str = "workers.mine = \"mine.py\"\nsweep = [{ operator = \"product\", \
     variants = \"mine/product\" }]\n[operators.product]\noutputs.out = \"32, 16\"\n\
     inputs.a = { shape = \"32, 64\", dtype = \"i8\", scale = \"a_scale\" }\n\
     inputs.a_scale = \"32, 1\"\n\
     inputs.b = { shape = \"64, 16\", dtype = \"i8\", scale = \"b_scale\" }\n\
     inputs.b_scale = \"1, 16\"\nreference = \"exact.py:product\"\ndtypes = \"f32\"\n";

#[test]
#[ignore = "needs NumPy"]
fn a_kernel_that_ignores_the_scales_of_its_inputs_is_wrong() {
    let product = "def product(a, a_scale, b, b_scale):\n    \
                   return (a.astype(\"f4\") @ b.astype(\"f4\")) * a_scale * b_scale\n";
    let place = Place::new();
    place.write("mine.py", product);
    place.write("exact.py", &product.replace(".astype(\"f4\")", ""));
    place.write("mine.toml", &format!("{QUANTISED}{SHORT}"));
    let (check, run) = (["worker", "check", "./mine.toml"], ["run", "./mine.toml"]);
    says(&place, &check, 0, "a_scale drawn again moves the results");
    says(&place, &run, 0, "");
    place.edit("mine.py", "* a_scale", "* a_scale.mean()");
    says(&place, &run, 1, "wrong result: out: relative L2 error");
    place.edit("exact.py", "* a_scale", "* 1");
    let words = "a kernel that ignores `a_scale` would pass";
    says(&place, &check, 1, words);
    place.edit(
        "mine.toml",
        "dtype = \"i8\", scale = \"a_scale\"",
        "dtype = \"e4m3\", scale = \"a_scale\"",
    );
    let words = "NumPy has no e4m3, which input `a` is: give it another dtype";
    says(&place, &run, 2, words);
}

/// A product with a bias that a case may go without.
const LINEAR: &str = "workers.mine = \"mine.py\"\nsweep = [{ operator = \"linear\", \
     variants = \"mine/linear\", bias = [true, false] }]\n[operators.linear]\ndtypes = \"f32\"\n\
     inputs.x = \"16, 8\"\ninputs.bias = { shape = \"8\", optional = true }\n\
     outputs.out = \"16, 8\"\nreference = \"exact.py:linear\"\n";

#[test]
fn an_optional_input_is_left_out_of_some_cases() {
    if std::env::var_os("REGATTA_TEST_PYTHON").is_none() {
        return;
    }
    let linear = "def linear(x, bias):\n    return 2 * x if bias is None else 2 * x + bias\n";
    let place = Place::new();
    place.write("mine.py", linear);
    place.write("exact.py", &linear.replace("bias):", "bias=None):"));
    place.write("mine.toml", &format!("{LINEAR}{SHORT}"));
    let (check, run) = (["worker", "check", "./mine.toml"], ["run", "./mine.toml"]);
    let (code, text) = ran(&place, &check);
    assert_eq!(code, 0, "{text}");
    for line in [
        "linear,bias=true,dtype=f32: bias drawn again moves the results",
        "linear,bias=true,dtype=f32: x drawn again moves the results",
        "linear,bias=false,dtype=f32: x drawn again moves the results",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("bias=false,dtype=f32: bias"), "{text}");
    says(&place, &run, 0, "2 measured");
    // The case without a bias is right.
    place.edit("mine.py", "2 * x + bias", "2 * x");
    says(&place, &run, 1, "1 error");
    place.edit("exact.py", ", bias=None", "");
    let words = "exact.py:linear\" cannot be called: it takes x, and no `bias`";
    says(&place, &run, 2, words);
    place.edit("mine.py", ", bias", "");
    let words = "mine/linear cannot be called for operator `linear`: it takes x, and no `bias`";
    says(&place, &run, 2, words);
}

/// The places of the largest numbers that a mask leaves, without a reference.
const PLACES: &str = "workers.mine = \"mine.py\"\nsweep = [{ operator = \"places\", \
     variants = \"mine/places\" }]\n[operators.places]\ndtypes = \"f32\"\naxes.k = 4\n\
     scalars.k = \"k\"\ninputs = { x = \"64, 32\", mask = { shape = \"64, 32\", dtype = \"bool\" } }\n\
     [operators.places.outputs]\nindex = { shape = \"64, k\", dtype = \"i64\" }\n\
     seen = { shape = \"64, 32\", dtype = \"bool\" }\n";

#[test]
#[ignore = "needs NumPy"]
fn places_and_masks_are_compared_exactly() {
    let code = "import numpy as np\n\n\ndef places(x, mask, k: int, /):\n    \
                seen = (x > 0) & mask\n    order = np.argsort(np.where(seen, -x, 0), axis=-1)\n    \
                return order[:, :k], seen\n";
    let place = committed(code, PLACES);
    let args = ["gate", "./mine.toml", "--base", "git:HEAD"];
    for (from, to, words) in [
        (
            "(x > 0)",
            "(x > 1e-3)",
            "wrong result: seen: relative L2 error",
        ),
        (":k]", "k - 1 :: -1]", "and i64 is compared exactly"),
    ] {
        place.edit("mine.py", from, to);
        let (code, text) = ran(&place, &args);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(words), "{text}");
        place.edit("mine.py", to, from);
    }
    for (from, to, words) in [
        ("i64", "int64", "\"int64\": use `f32`, `f16`"),
        (
            "dtype = \"bool\" } }",
            "dtype = \"i64\" } }",
            "draw it by `integers(low, high)`",
        ),
        (
            "axes.k",
            "gradients = \"x\"\naxes.k",
            "the output `index` has no gradient",
        ),
    ] {
        place.edit("mine.toml", from, to);
        let (code, text) = ran(&place, &["run", "./mine.toml"]);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(words), "{text}");
        place.edit("mine.toml", to, from);
    }
}
