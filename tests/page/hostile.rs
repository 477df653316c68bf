//! A run whose kernels, reasons and description mean harm, and a page whose ids do: no run can
//! have those, since an invalid id is refused where it is read.

use std::fs;
use std::path::Path;

use regatta_core::machine::Structure;
use regatta_core::record::run_file::{self, Opening, RunWriter};
use regatta_core::record::{Outcome, Run};

use super::runs::{self, Which};

/// The endings of ids.
const NAMES: [&str; 7] = [
    "</script><img src=x onerror=\"window.injected=true\">",
    "' \" & <b onclick=x>",
    "\u{202e}desrever",
    "__proto__",
    "#&%=+,word=regressed",
    "<!--<script>",
    "\u{1f980}µ→",
];

/// Those of them that must be on the page as text.
pub const SEEN: [&str; 5] = [NAMES[0], NAMES[1], NAMES[3], NAMES[4], NAMES[6]];

/// Writes it into `base` or `head` of a folder.
pub fn write(folder: &Path, which: Which) {
    let name = match which {
        Which::Base => "base",
        Which::Head => "head",
    };
    let plain = folder.join(format!("plain-{name}"));
    runs::write(&plain, 60, which);
    let mut run: Run = run_file::read(&plain.join("run.jsonl")).unwrap();
    run.header.suite.description = NAMES[0].to_owned();
    run.header.suite.name = "</title><script>window.injected=true</script>".to_owned();
    run.header
        .machine
        .soft
        .insert(NAMES[1].to_owned(), NAMES[0].to_owned());
    for entry in &mut run.entries {
        match &mut entry.outcome {
            Outcome::Measured(measurement) => {
                if let Some(structure) = &mut measurement.structure {
                    kernels(structure);
                }
            }
            Outcome::Failed { reason, log, .. } => {
                *reason = NAMES.concat();
                *log = NAMES[0].repeat(20);
            }
            _ => {}
        }
    }
    let (mut writer, _) =
        RunWriter::open(&folder.join(name), &run.header, &Opening::default()).unwrap();
    for entry in &run.entries {
        writer.append(entry).unwrap();
    }
    writer.finish(run.end.unwrap()).unwrap();
}

/// Gives the cases of a page such ids, but for those that the page links to.
pub fn rename(page: &Path) {
    let text = fs::read_to_string(page).unwrap();
    let (before, rest) = text.split_once(" id=\"data\">").unwrap();
    let (data, after) = rest.split_once("</script>").unwrap();
    let mut document: serde_json::Value = serde_json::from_str(data).unwrap();
    let mut id = String::new();
    for (place, packed) in document["ids"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .enumerate()
    {
        id.truncate(packed[0].as_u64().unwrap() as usize);
        id.push_str(packed[1].as_str().unwrap());
        let linked = text.contains(&format!("#case={}\"", id.replace('/', "&#x2f;")));
        let ending = match place {
            _ if linked => String::new(),
            1 => "x".repeat(300),
            place => NAMES[place % NAMES.len()].to_owned(),
        };
        *packed = serde_json::json!([0, format!("{id}{ending}")]);
    }
    for axis in document["axes"].as_array_mut().unwrap() {
        axis["values"][0] = NAMES[0].into();
    }
    let data = document.to_string().replace('<', "\\u003c");
    fs::write(page, format!("{before} id=\"data\">{data}</script>{after}")).unwrap();
}

fn kernels(structure: &mut Structure) {
    for launch in &mut structure.launches {
        launch.name = format!("template<{}, {}>", NAMES[0], "W".repeat(400));
    }
}
