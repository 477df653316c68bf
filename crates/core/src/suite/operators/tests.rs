//! Declarations of operators; `refused.txt` of suites has those that are refused.

use super::*;
use crate::suite::tests::parse as suite;

const RMSNORM: &str = "[operators.rmsnorm]\naxes = { rows = 64, width = \"required\" }\n\
                       inputs = { x = \"rows, width\", weight = \"width\" }\n\
                       scalars = { eps = 1e-6 }\noutputs = { y = \"rows, width\" }\n";

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
        let suite = suite(&text).unwrap();
        let problem = suite.cases[0].problem.declared().unwrap();
        let operands = suite.operators["o"].operands(problem).unwrap();
        let scale = operands.inputs[1].scale.clone().unwrap();
        assert_eq!(*scale, operands.inputs[0]);
        *scale
    };
    let rows = "shape = \"4, 1\"";
    let scale = input("dtype = \"i8\", scale = \"s\"", rows);
    assert_eq!(scale.role, Role::Scale);
    let least = 4.899 / 127.0;
    assert_eq!(scale.draw.arguments, [least, 4.0 * least]);
    let drawn = "dtype = \"e4m3\", scale = \"s\", draw = \"uniform(-1, 2)\"";
    let scale = input(drawn, "shape = \"2, 3\"");
    assert_eq!(scale.draw.arguments[0], 2.0 / 448.0);
    let drawn = "dtype = \"e5m2\", scale = \"s\"";
    assert_eq!(input(drawn, rows).draw.arguments[0], 4.899 / 57344.0);
    let own = "shape = \"4, 1\", draw = \"constant(0.5)\"";
    let scale = input("dtype = \"i8\", scale = \"s\"", own);
    assert_eq!(scale.draw.arguments, [0.5]);
    let mx = "shape = \"4, 3\", dtype = \"e8m0\"";
    let scale = input("dtype = \"e4m3\", scale = \"s\"", mx);
    assert_eq!(scale.draw.to_string(), "shared-exponent");
    let value = scale.scales.unwrap();
    assert_eq!((&value.name[..], &value.shape[..]), ("x", &[4, 6][..]));
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
