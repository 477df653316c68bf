//! Headless Chromium, and what the script in a page found.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A script that is put into copies of pages.
const PROBE: &str = include_str!("probe.js");

/// Longest that one page may take, in seconds.
const LIMIT: &str = "240";

pub struct Browser {
    program: &'static str,
}

/// The way in which a page is shown.
#[derive(Clone, Copy, Default)]
pub struct Ask {
    /// In its dark colours.
    pub dark: bool,
    /// By axe-core as well, the script that `REGATTA_AXE` names: it is under MPL-2.0 and is not kept here.
    pub axe: bool,
}

/// The results at a width.
pub struct Found {
    pub width: u32,
    pub json: serde_json::Value,
    /// The same as text, without the longest part.
    pub text: String,
}

impl Found {
    pub fn number(&self, key: &str) -> u64 {
        let value = &self.json[key];
        value
            .as_f64()
            .unwrap_or_else(|| panic!("no {key} in {}", self.text)) as u64
    }

    pub fn list(&self, key: &str) -> Vec<String> {
        let values = self.json[key].as_array().into_iter().flatten();
        values
            .map(|value| value.as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

impl Browser {
    /// The first of its names that is installed.
    pub fn found() -> Browser {
        let there = |program: &&str| {
            let mut command = Command::new(program);
            let command = command.arg("--version").stdout(Stdio::null());
            command.stderr(Stdio::null()).status().is_ok()
        };
        let names = ["chromium", "chromium-browser", "google-chrome"];
        Browser {
            program: names.into_iter().find(there).expect("there is a Chromium"),
        }
    }

    /// Opens a copy of a page at each width, one after the other, and gives what its script
    /// finds.
    pub fn asks(&self, page: &Path, widths: &[u32], ask: Ask) -> Vec<Found> {
        let folder = tempfile::tempdir().unwrap();
        let text = fs::read_to_string(page).unwrap();
        fs::write(folder.path().join("page.html"), probed(&text, ask)).unwrap();
        // A window is never narrow; a frame is as narrow as requested.
        let harness = include_str!("harness.html").replace("WIDTHS", &format!("{widths:?}"));
        let path = folder.path().join("harness.html");
        fs::write(&path, harness).unwrap();
        let mut arguments = vec![
            "--dump-dom".to_owned(),
            "--virtual-time-budget=600000".to_owned(),
        ];
        if ask.dark {
            arguments.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        let dumped = self.run(&path, folder.path(), &arguments);
        let probe = dumped
            .split_once("<pre id=\"found\">")
            .and_then(|(_, rest)| rest.split_once("</pre>"));
        let (probe, _) = probe.unwrap_or_else(|| panic!("nothing was found in {}", page.display()));
        let probe = probe
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&nbsp;", "\u{a0}")
            .replace("&amp;", "&");
        let all: Vec<serde_json::Value> = serde_json::from_str(&probe).unwrap();
        assert_eq!(all.len(), widths.len());
        let each = all.into_iter().zip(widths);
        each.map(|(json, width)| {
            let mut short = json.clone();
            for long in ["details", "ids", "axe", "words"] {
                short[long] = serde_json::Value::Null;
            }
            Found {
                width: *width,
                json,
                text: short.to_string(),
            }
        })
        .collect()
    }

    /// The page as a PDF.
    pub fn prints(&self, page: &Path, folder: &Path) -> Vec<u8> {
        let out = folder.join("printed.pdf");
        self.run(page, folder, &[format!("--print-to-pdf={}", out.display())]);
        fs::read(out).unwrap()
    }

    fn run(&self, page: &Path, folder: &Path, arguments: &[String]) -> String {
        let profile = folder.join("profile");
        let output = Command::new("timeout")
            .args(["--kill-after=5", LIMIT, self.program])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .arg("--disable-dev-shm-usage")
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("--window-size=1600,1000")
            .args(arguments)
            .arg(format!("file://{}", page.display()))
            .stderr(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}: {}",
            self.program,
            output.status
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A copy of a page with the script in it, and one that hears its errors from the start.
fn probed(page: &str, ask: Ask) -> String {
    const HEARS: &str = r#"<head><script>window.probeErrors = [];
addEventListener("error", (event) => probeErrors.push(event.message));
addEventListener("unhandledrejection", (event) => probeErrors.push(String(event.reason)));</script>"#;
    let (before, after) = page.rsplit_once("</body>").unwrap();
    let axe = if ask.axe {
        let path = std::env::var_os("REGATTA_AXE").expect("REGATTA_AXE names an axe.min.js");
        let axe = fs::read_to_string(path).unwrap();
        format!(
            "<script>{axe}</script><script>window.probeAxe = async () => {{
const found = await axe.run(document, {{ resultTypes: [\"violations\"] }});
return {{ asked: found.passes.length + found.violations.length, violations: found.violations.map((rule) => ({{ id: rule.id, impact: rule.impact, nodes: rule.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)) }})) }};
}};</script>"
        )
    } else {
        String::new()
    };
    let page = format!("{before}{axe}<script>{PROBE}</script></body>{after}");
    page.replacen("<head>", HEARS, 1)
}
