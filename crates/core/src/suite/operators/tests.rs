//! Declarations of operators, and those that are refused.

use super::super::plan;
use super::*;
use crate::suite::{Suite, load};

const RMSNORM: &str = "[operators.rmsnorm]\naxes = { rows = 64, width = \"required\" }\n\
                       inputs = { x = \"rows, width\", weight = \"width\" }\n\
                       scalars = { eps = 1e-6 }\noutputs = { y = \"rows, width\" }\n";

fn suite(text: &str) -> Result<Suite, String> {
    let source = TomlText {
        label: "s.toml".to_owned(),
        text: text.to_owned(),
    };
    plan::read("s", &source, std::path::Path::new(""), &load).map_err(|error| error.to_string())
}

#[test]
fn a_declared_operator_makes_cases_with_concrete_shapes() {
    let sweep = "[[sweep]]\noperator = \"rmsnorm\"\nvariants = \"mine/rmsnorm\"\n\
                 rows = [64, 128]\nwidth = 32\ndtype = [\"f32\", \"bf16\"]\n";
    let suite = suite(&format!("{RMSNORM}flops = \"4 * rows * width\"\n{sweep}")).unwrap();
    let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
    assert_eq!(ids.len(), 4);
    assert!(ids.contains(&"mine/rmsnorm:rmsnorm,rows=128,width=32,dtype=bf16".to_owned()));
    let case = &suite.cases[0];
    let problem = case.problem.declared().unwrap();
    let operands = suite.operators["rmsnorm"].operands(problem).unwrap();
    let shapes: Vec<_> = operands
        .inputs
        .iter()
        .map(|input| &input.shape[..])
        .collect();
    assert_eq!(shapes, [&[32][..], &[64, 32]]);
    assert_eq!(operands.scalars["eps"], 1e-6);
    assert_eq!(operands.outputs[0].limit, 5e-6);
    assert_eq!(
        case.problem.flops(&suite.operators),
        Some(4.0 * 64.0 * 32.0)
    );
    assert_eq!(
        case.problem.bytes(&suite.operators),
        Some(4.0 * (2.0 * 64.0 * 32.0 + 32.0))
    );
}

#[test]
fn built_in_operators_need_no_declaration_and_can_be_declared_again() {
    let sweep = "[[sweep]]\noperator = \"rmsnorm\"\nvariants = \"mine/rmsnorm\"\n";
    let built_in = suite(&format!("{sweep}rows = 8\n")).unwrap();
    let ids: Vec<String> = built_in.cases.iter().map(ToString::to_string).collect();
    assert_eq!(ids, ["mine/rmsnorm:rmsnorm,rows=8,width=4096,dtype=f32"]);
    let operator = &built_in.operators["rmsnorm"];
    assert_eq!(operator.reference.as_deref(), Some("regatta:rmsnorm"));
    let own = suite(&format!("{RMSNORM}{sweep}width = 8\n")).unwrap();
    assert_eq!(own.operators["rmsnorm"].reference, None);
    let masked = RMSNORM.replace("1e-6", "-1e39");
    suite(&format!("{masked}{sweep}width = 8\n")).unwrap();
    let reference = "reference = \"regatta:rmsnrom\"\n";
    let error = suite(&format!("{RMSNORM}{reference}{sweep}width = 8\n")).unwrap_err();
    assert!(
        error.contains("no built-in operator has the name `rmsnrom`"),
        "{error}"
    );
}

#[test]
fn a_sweep_asks_for_gradients_by_direction() {
    let sweep = "[[sweep]]\noperator = \"rmsnorm\"\nvariants = \"mine/rmsnorm\"\nwidth = 8\n\
                 dtype = \"bf16\"\ndirection = [\"forward\", \"backward\", \"both\"]\n";
    let gradients = "flops = \"rows\"\nbytes = \"rows\"\ngradients = [\"x\", \"weight\"]\n";
    let suite = suite(&format!("{RMSNORM}{gradients}{sweep}")).unwrap();
    let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
    let id =
        |direction: &str| format!("mine/rmsnorm:rmsnorm,{direction}rows=64,width=8,dtype=bf16");
    let wanted = ["direction=backward,", "direction=both,", ""].map(id);
    assert_eq!(ids, wanted);
    let operator = &suite.operators["rmsnorm"];
    let operands = |place: usize| {
        let problem = suite.cases[place].problem.declared().unwrap();
        operator.operands(problem).unwrap()
    };
    let names = |place: usize| -> Vec<String> {
        operands(place)
            .outputs
            .into_iter()
            .map(|output| output.name)
            .collect()
    };
    assert_eq!(names(0), ["dx", "dweight"]);
    assert_eq!(names(1), ["y", "dx", "dweight"]);
    assert_eq!(names(2), ["y"]);
    let backward = operands(0);
    assert_eq!(backward.outputs[1].shape, [8]);
    assert_eq!(backward.outputs[1].limit, 2e-2);
    assert_eq!(backward.inputs[2].name, "dy");
    assert_eq!(backward.gradients.unwrap().given, ["dy"]);
    assert_eq!(operands(2).gradients, None);
    // Formulas are of a forward call; a backward one moves all of its tensors.
    let work = |place: usize| {
        let problem = &suite.cases[place].problem;
        (
            problem.flops(&suite.operators),
            problem.bytes(&suite.operators),
        )
    };
    assert_eq!(work(2), (Some(64.0), Some(64.0)));
    assert_eq!(work(0), (None, Some(2.0 * (3.0 * 64.0 * 8.0 + 2.0 * 8.0))));
}

#[test]
fn a_scale_is_drawn_for_what_it_scales() {
    let input = |x: &str, scale: &str| {
        let text = format!(
            "[operators.o]\ninputs.x = {{ shape = \"4, 6\", {x} }}\ninputs.s = {{ {scale} }}\n\
             inputs.y = \"4\"\noutputs.out = \"4\"\n[[sweep]]\noperator = \"o\"\n\
             variants = \"mine/o\"\n"
        );
        let suite = suite(&text)?;
        let problem = suite.cases[0].problem.declared().unwrap();
        let operands = suite.operators["o"].operands(problem).unwrap();
        let scale = operands.inputs[1].scale.clone().unwrap();
        assert_eq!(*scale, operands.inputs[0]);
        Ok::<_, String>(*scale)
    };
    let rows = "shape = \"4, 1\"";
    let scale = input("dtype = \"i8\", scale = \"s\"", rows).unwrap();
    assert_eq!(scale.role, Role::Scale);
    let least = 4.899 / 127.0;
    assert_eq!(scale.draw.arguments, [least, 4.0 * least]);
    let drawn = "dtype = \"e4m3\", scale = \"s\", draw = \"uniform(-1, 2)\"";
    let scale = input(drawn, "shape = \"2, 3\"").unwrap();
    assert_eq!(scale.draw.arguments[0], 2.0 / 448.0);
    let drawn = "dtype = \"e5m2\", scale = \"s\"";
    assert_eq!(
        input(drawn, rows).unwrap().draw.arguments[0],
        4.899 / 57344.0
    );
    let own = "shape = \"4, 1\", draw = \"constant(0.5)\"";
    let scale = input("dtype = \"i8\", scale = \"s\"", own).unwrap();
    assert_eq!(scale.draw.arguments, [0.5]);
    let mx = "shape = \"4, 3\", dtype = \"e8m0\"";
    let scale = input("dtype = \"e4m3\", scale = \"s\"", mx).unwrap();
    assert_eq!(scale.draw.to_string(), "shared-exponent");
    let value = scale.scales.unwrap();
    assert_eq!((&value.name[..], &value.shape[..]), ("x", &[4, 6][..]));
    let quantised = "dtype = \"i8\", scale = \"s\"";
    for (x, scale, words) in [
        (
            "dtype = \"i8\"",
            rows,
            "inputs.x.draw: `normal(1)` does not draw i8: name the input that multiplies its \
             values, as in scale = \"x_scale\"",
        ),
        (
            "dtype = \"i8\", scale = \"t\"",
            rows,
            "s.toml:2: operators.o.inputs.x.scale = \"t\": unknown input `t` (inputs: s, x, y)",
        ),
        (
            "scale = \"s\"",
            rows,
            "give it dtype = \"i8\", \"e4m3\" or \"e5m2\"",
        ),
        (
            "dtype = \"i8\", draw = \"permutation\", scale = \"s\"",
            rows,
            "and a draw of real numbers",
        ),
        (
            quantised,
            "shape = \"4, 1\", role = \"data\"",
            "`s` has to be of f32, f16, bf16 or e8m0, and its role `scale`",
        ),
        (
            "dtype = \"i8\", draw = \"integers(0, 9)\"",
            mx,
            "s.toml:3: operators.o.inputs.s.dtype = \"e8m0\": e8m0 is of scales: name the input in \
             another's scale = \"s\"",
        ),
        (
            quantised,
            "shape = \"4, 3\", dtype = \"e8m0\", draw = \"constant(1)\"",
            "inputs.s.draw: `constant(1)` does not draw e8m0: `shared-exponent` draws e8m0, and \
             nothing else does: leave the draw out",
        ),
        (
            quantised,
            "shape = \"4, 1\", draw = \"shared-exponent\", dtype = \"f32\"",
            "`shared-exponent` does not draw f32",
        ),
        ("dtype = \"e8m0\", scale = \"s\"", rows, "e8m0 is of scales"),
        (
            quantised,
            "shape = \"4, 4\"",
            "inputs.x.scale: `s` is of shape [4, 4], and `x` of [4, 6]: give it as many axes",
        ),
        (quantised, "shape = \"4\"", "give it as many axes"),
        (
            quantised,
            "shape = \"4, 1\", draw = \"uniform(0.001, 1)\"",
            "`x` is drawn up to 4.899e0, for which i8 needs a scale of 3.857e-2 at the least, and `s` \
 is drawn by `uniform(0.001, 1)`: leave out its draw",
        ),
        (
            quantised,
            "shape = \"4, 1\", draw = \"normal\"",
            "and `s` is drawn by `normal(1)`: leave out its draw, or draw it by `uniform(low, high)`",
        ),
        (
            "dtype = \"i8\", scale = \"s\" }\ninputs.z = { shape = \"4, 6\", dtype = \"i8\", \
             scale = \"s\"",
            rows,
            "`s` scales another input too: give each its own",
        ),
        (
            "dtype = \"i8\", scale = \"s\", draw = \"normal(1, 2)\"",
            rows,
            "`normal` takes 0 to 1 arguments",
        ),
    ] {
        let error = input(x, scale).unwrap_err();
        assert!(error.contains(words), "{x}, {scale}: {error}");
    }
}

/// A product with a bias that a case may leave out.
const LINEAR: &str = "[operators.linear]\naxes.rows = 4\ninputs.x = \"rows, 8\"\n\
                      inputs.bias = { shape = \"8\", optional = true }\noutputs.out = \"rows, 8\"\n";

#[test]
fn an_optional_input_is_an_axis() {
    let sweep = "gradients = [\"x\", \"bias\"]\n[[sweep]]\noperator = \"linear\"\n\
                 variants = \"mine/linear\"\ndtype = \"f32\"\nbias = [true, false]\n\
                 direction = [\"forward\", \"backward\"]\n";
    let expect = "[[expect]]\ncase = { bias = false }\nmetric = \"launches\"\nat_most = 1\n";
    let suite = suite(&format!("{LINEAR}{sweep}{expect}")).unwrap();
    let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
    let id = |axes: &str| format!("mine/linear:linear,{axes},rows=4,dtype=f32");
    let wanted = [
        "bias=false,direction=backward",
        "bias=true,direction=backward",
        "bias=false",
        "bias=true",
    ];
    assert_eq!(BTreeSet::from_iter(ids.clone()), wanted.map(id).into());
    let operator = &suite.operators["linear"];
    for (case, id) in suite.cases.iter().zip(&ids) {
        let problem = case.problem.declared().unwrap();
        let operands = operator.operands(problem).unwrap();
        let has = |name: &str| operands.inputs.iter().any(|one| one.name == name);
        let is_off = id.contains("bias=false");
        assert!(has("x") && has("bias") != is_off, "{id}");
        let left_out = if is_off { vec!["bias"] } else { vec![] };
        assert_eq!(operands.left_out, left_out, "{id}");
        let (bytes, bias) = (operator.bytes_of(problem).unwrap(), 4.0 * 8.0);
        if let Some(gradients) = &operands.gradients {
            let by: &[&str] = if is_off { &["x"] } else { &["x", "bias"] };
            assert_eq!(gradients.by, by);
            assert_eq!(operands.outputs.len(), by.len());
        } else {
            let given = if is_off { 0.0 } else { bias };
            assert_eq!(bytes, 2.0 * 4.0 * 4.0 * 8.0 + given);
        }
    }
    assert_eq!(operator.example().axes["bias"].to_string(), "true");
}

#[test]
fn what_cannot_be_optional_is_refused_with_its_place() {
    let sweep = "[[sweep]]\noperator = \"linear\"\nvariants = \"mine/linear\"\n";
    let from = "inputs.bias = { shape = \"8\", optional = true }";
    for (to, more, words) in [
        (
            "inputs.bias = { shape = \"8\", optional = true, role = \"state\" }",
            "",
            "s.toml:4: operators.linear.inputs.bias.optional = true: a call leaves results in a \
             state: a state is given to each",
        ),
        (
            "inputs.bias = { shape = \"8\", dtype = \"i8\", scale = \"s\" }\n\
             inputs.s = { shape = \"1\", optional = true }",
            "",
            "operators.linear.inputs.s.optional = true: a scale and what it scales are given together",
        ),
        (
            "inputs.bias = { shape = \"8\", dtype = \"i8\", scale = \"s\", optional = true }\n\
             inputs.s = \"1\"",
            "",
            "operators.linear.inputs.bias.optional = true: a scale and what it scales are given together",
        ),
        (
            "axes.bias = 4\ninputs.bias = { shape = \"8\", optional = true }",
            "",
            "inputs.bias.optional = true: it is an axis of its name, and another has this name",
        ),
        (
            "inputs.dtype = { shape = \"8\", optional = true }",
            "",
            "inputs.dtype.optional = true: `dtype` cannot name an axis",
        ),
        (
            "inputs.bias = { shape = \"8\", optional = true }\nflops = \"rows * bias\"",
            "",
            "flops = \"rows * bias\": `bias` is an axis of words, and a formula has numbers",
        ),
        (
            "inputs.bias = { shape = \"8\", optional = true }\ngradients = \"bias\"",
            "bias = false\ndirection = \"backward\"\n",
            "operators.linear.gradients: linear,bias=false,direction=backward,rows=4,dtype=f32 leaves \
             out each input that it is differentiated by",
        ),
        (
            from,
            "bias = \"no\"\n",
            "sweep[0].bias = \"no\": use true or false",
        ),
        (
            from,
            "rows = true\n",
            "sweep[0].rows = true: expected a whole number, found boolean",
        ),
    ] {
        let text = LINEAR.replace(from, to);
        let error = suite(&format!("{text}{sweep}{more}")).unwrap_err();
        assert!(error.contains(words), "{to}: {error}");
    }
    let every = LINEAR.replace(
        "\"rows, 8\"\ninputs.bias",
        "{ shape = \"8\", optional = true }\ninputs.bias",
    );
    let error = suite(&format!("{every}{sweep}")).unwrap_err();
    assert!(error.contains("inputs: every input is optional"), "{error}");
}

#[test]
fn outputs_are_in_the_order_of_the_file() {
    let text = "[operators.o]\ninputs = { x = \"4\" }\noutputs.z = \"4\"\noutputs.a = \"4\"\n\
                [[sweep]]\noperator = \"o\"\nvariants = \"mine/o\"\n";
    let suite = suite(text).unwrap();
    let outputs = suite.operators["o"].outputs.iter();
    assert_eq!(
        outputs.map(|output| &output.name[..]).collect::<Vec<_>>(),
        ["z", "a"]
    );
}

#[test]
fn a_tensor_without_extents_is_one_number() {
    for shape in ["\"\"", "[]"] {
        let declared = RMSNORM.replace("{ y = \"rows, width\" }", &format!("{{ y = {shape} }}"));
        let sweep = "[[sweep]]\noperator = \"rmsnorm\"\nvariants = \"mine/rmsnorm\"\nwidth = 8\n";
        let suite = suite(&format!("{declared}{sweep}")).unwrap();
        let problem = suite.cases[0].problem.declared().unwrap();
        let operands = suite.operators["rmsnorm"].operands(problem).unwrap();
        assert_eq!(operands.outputs[0].shape, [0u64; 0]);
    }
}

#[test]
fn bad_declarations_are_named_with_their_place() {
    let sweep = "[[sweep]]\noperator = \"rmsnorm\"\nvariants = \"mine/rmsnorm\"\nwidth = 32\n";
    let error = |from: &str, to: &str| {
        let text = format!("{RMSNORM}{sweep}");
        assert!(text.contains(from), "{from}");
        suite(&text.replace(from, to)).unwrap_err()
    };
    for (from, to, words) in [
        (
            "weight = \"width\"",
            "weight = \"wdith\"",
            "s.toml:3: operators.rmsnorm.inputs.weight = \"wdith\": `wdith` is no axis of the \
          operator; did you mean `width`? (axes: rows, width)",
        ),
        (
            "weight = \"width\"",
            "weight = \"width - 32\"",
            "operators.rmsnorm.inputs.weight.shape[0]: `width - 32` is 0; an extent is at least 1",
        ),
        (
            "width = 32\n",
            "rows = 8\n",
            "axis `width` of operator `rmsnorm` has no default; give it in the sweep (at rows = 8)",
        ),
        (
            "width = 32\n",
            "",
            "axis `width` of operator `rmsnorm` has no default; give it in the sweep",
        ),
        (
            "width = 32\n",
            "width = 32\nheads = 4\n",
            "s.toml:10: sweep[0].heads = 4: unknown key",
        ),
        (
            "operator = \"rmsnorm\"",
            "operator = \"rsmnorm\"",
            "sweep[0].operator = \"rsmnorm\": no such operator; did you mean `rmsnorm`?",
        ),
        (
            "weight = \"width\"",
            "weight = { shape = \"width\", draw = \"log-decay(0, 1)\" }",
            "makes NaN",
        ),
        (
            "weight = \"width\"",
            "weight = { shape = \"width\", draw = \"gauss\" }",
            "`gauss` is not a draw; use",
        ),
        (
            "outputs = { y = \"rows, width\" }",
            "outputs = {}",
            "an operator has 1 to 32",
        ),
        ("eps = 1e-6", "eps = \"1 / zero\"", "`zero` is no axis"),
        (
            "eps = 1e-6",
            "eps = \"1 / (rows - 64)\"",
            "operators.rmsnorm.scalars.eps",
        ),
        ("eps = 1e-6", "x = 1e-6", "an input has this name"),
        (
            "[[sweep]]",
            "reference = \"none.py:f\"\n[[sweep]]",
            "there is no file none.py",
        ),
        (
            "[[sweep]]",
            "requires = \"rows % 3\"\n[[sweep]]",
            "write a condition",
        ),
        (
            "[[sweep]]",
            "requires = \"rows % 3 == 0\"\n[[sweep]]",
            "`rows % 3 == 0` does not hold for rmsnorm,rows=64",
        ),
        (
            "rows = 64,",
            "variant = 64,",
            "`variant` cannot name an axis",
        ),
        (
            "[[sweep]]",
            "flops = \"rows - 65\"\n[[sweep]]",
            "operators.rmsnorm.flops: `rows - 65` is -1; an amount is above 0, or left out",
        ),
        (
            "eps = 1e-6",
            "eps = inf",
            "operators.rmsnorm.scalars.eps: `inf`: ",
        ),
        (
            "[[sweep]]",
            "gradients = \"z\"\n[[sweep]]",
            "s.toml:6: operators.rmsnorm.gradients = \"z\": unknown input `z` (inputs: \
             weight, x)",
        ),
        (
            "[[sweep]]",
            "gradients = [\"x\", \"x\"]\n[[sweep]]",
            "`x` is listed twice",
        ),
        (
            "weight = \"width\" }",
            "weight = { shape = \"width\", draw = \"permutation\" } }\ngradients = \"weight\"",
            "the input `weight` is of i32, and a gradient is by real numbers",
        ),
        (
            "weight = \"width\" }",
            "weight = { shape = \"width\", role = \"state\" } }\ngradients = \"x\"",
            "a call writes into the state `weight`, and what it had is lost",
        ),
        (
            "eps = 1e-6 }",
            "dy = 1e-6 }\ngradients = \"x\"",
            "the gradient of `y` is named `dy`: rename what has this name",
        ),
        (
            "width = 32\n",
            "width = 32\ndirection = \"backward\"\n",
            "sweep[0].direction = \"backward\": operator `rmsnorm` is forward alone: name the \
             inputs that it is differentiated by, as in gradients = [\"x\"]",
        ),
    ] {
        let error = error(from, to);
        assert!(
            error.contains(words) && !error.contains("(at )"),
            "{from} -> {to}: {error}"
        );
    }
}
