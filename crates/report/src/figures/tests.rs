//! Each kind of figure, from data to the files.

use super::*;
use crate::fixture::{self, Scene};

/// The texts of an SVG that are seen, in the order in which they are drawn.
fn texts(svg: &str) -> Vec<String> {
    let mut lines = svg.lines();
    let mut texts = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("<text") {
            texts.extend(lines.next().map(str::to_owned));
        }
    }
    texts
}

/// A run of two variants along an axis, whose device was measured to reach something.
fn sweep() -> Scene {
    let mut scene = fixture::large(48);
    scene.judgement.base = None;
    let peak = serde_json::json!({ "tflops": { "f32": 60.0, "bf16": 790.0, "f16": 790.0 }, "gbps": 4200.0, "how": "matmul" });
    let worker = scene.head.header.workers[0].name.clone();
    let peak = serde_json::from_value(peak).unwrap();
    scene.head.header.peaks.insert(worker, peak);
    scene
}

fn drawn(scene: &Scene) -> Vec<Figure> {
    of_run(&scene.report()).unwrap()
}

fn kinds(figures: &[Figure]) -> Vec<&str> {
    figures.iter().map(|figure| figure.kind).collect()
}

#[test]
fn each_kind_is_drawn_where_there_is_data_for_it() {
    assert_eq!(kinds(&drawn(&fixture::empty())), [""; 0]);
    let mut seen = kinds(&drawn(&sweep())).join(" ");
    seen += &kinds(&drawn(&fixture::failed())).join(" ");
    for kind in KINDS.iter().filter(|kind| **kind != "history") {
        assert!(seen.contains(kind), "{kind} is not in {seen}");
    }
}

#[test]
fn files_are_light_and_dark_and_a_picture_has_two_pixels_for_one() {
    let figures = drawn(&fixture::failed());
    let figure = figures
        .iter()
        .find(|figure| figure.kind == "forest")
        .unwrap();
    let files = figure.files().unwrap();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let expected = ["light.svg", "light.png", "dark.svg", "dark.png"];
    assert_eq!(names, expected.map(|name| format!("forest-{name}")));
    assert!(
        names
            .iter()
            .all(|name| file_names().any(|known| known == *name))
    );
    let tall = (2.0 * figure.titled().height) as usize;
    for (place, page) in [(1, [0xff, 0xff, 0xff]), (3, [0x14, 0x17, 0x1a])] {
        let png = &files[place].1;
        let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!([side(16), side(20)], [1920, tall]);
        let data = png.windows(4).position(|kind| kind == b"IDAT").unwrap();
        let pixels =
            miniz_oxide::inflate::decompress_to_vec_zlib(&png[data + 4..][..side(data - 4)]);
        let pixels = pixels.unwrap();
        assert_eq!(pixels.len(), tall * (3 * 1920 + 1));
        // A corner is paper, and something is drawn on it.
        assert_eq!(pixels[1..4], page);
        assert!(pixels.iter().filter(|byte| !page.contains(byte)).count() > 10_000);
    }
    let svg = String::from_utf8(files[0].1.clone()).unwrap();
    assert_eq!(svg.matches("@font-face").count(), 2);
    assert!(
        svg.contains("base64,T1RUTw") && !svg.contains("<script"),
        "letters of OpenType"
    );
    let seen = texts(&svg);
    for text in ["2 of 11 cases", "+11.8 %", "slower →", "torch/sdpa-cudnn"] {
        assert!(
            seen.iter().any(|line| line.contains(text)),
            "no {text} in {seen:#?}"
        );
    }
}

#[test]
fn titles_say_the_finding() {
    let (sweep, failed) = (drawn(&sweep()), drawn(&fixture::failed()));
    let titles = sweep
        .iter()
        .chain(&failed)
        .map(|figure| format!("{}: {}\n  {}\n", figure.kind, figure.title, figure.about));
    insta::assert_snapshot!(titles.collect::<String>());
}

#[test]
fn every_colour_is_in_both_lights_of_the_style_sheet() {
    for name in paint::INKS {
        let marks = include_str!("../html/style.css")
            .matches(&format!("--{name}: #"))
            .count();
        assert_eq!(marks, 2, "{name}");
    }
}

#[test]
fn any_times_can_be_drawn() {
    let odd = [f64::NAN, 0.0, -1.0, f64::INFINITY, 1e-9, 1.0, 1e9];
    for count in [0, 1, 7, 300] {
        let points = odd.into_iter().cycle().take(count).zip(0..);
        let plot = LinePlot {
            lines: vec![PlotLine {
                name: "<x>".to_owned(),
                ink: "head",
                points: points
                    .map(|(ns, at)| (f64::from(at), ns, format!("<{at}>")))
                    .collect(),
                ..PlotLine::default()
            }],
            steps: vec![(2.5, 1.0, 2.0), (9.0, f64::NAN, 1.0)],
            levels: vec![(1e6, "allowed", "muted")],
            mark: (count > 1).then(|| (0.5, 2.0, "auto became 1".to_owned())),
            tall: 200.0,
            ..LinePlot::default()
        };
        let figure = Figure::new("curves", "<x>", "", move |wide| plot.draw(wide));
        let drawn = figure.inline().unwrap();
        assert!(!drawn.contains("<x>") && !drawn.contains("NaN"), "{drawn}");
        assert!(drawn.contains(">allowed</text>"));
        assert_eq!(drawn.contains("auto became 1</text>"), count > 1);
    }
}

#[test]
fn a_word_for_which_there_is_no_room_is_left_out() {
    let shown = |scene: &Scene| {
        let figures = drawn(scene);
        let mut forests = figures.iter().filter(|figure| figure.kind == "forest");
        let svg = forests.next().unwrap().inline().unwrap();
        svg.matches("← faster").count()
    };
    let mut scene = fixture::failed();
    assert_eq!(shown(&scene), 2);
    // Without a faster case the middle lies at the left edge of a telephone.
    scene
        .judgement
        .rows
        .retain(|row| row.word != regatta_judge::judgement::Word::Improved);
    assert_eq!(shown(&scene), 1);
}
