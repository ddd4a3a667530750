//! The comparison as one page: plots and tables, nothing from elsewhere.

use std::fmt::Write;

use super::ablate::Cost;
use super::apart::Apart;
use super::ops::Row;
use super::ranges::Range;
use super::steps::Growth;

/// What a page shows.
pub struct Page<'a> {
    pub title: &'a str,
    pub outputs: &'a [(String, Apart)],
    pub rows: &'a [Row],
    pub ranges: &'a [Range],
    pub costs: &'a [Cost],
    pub growth: Option<&'a Growth>,
}

/// Width and height of a plot, and the room for its labels.
const SIZE: (f64, f64) = (960.0, 260.0);
const LEFT: f64 = 60.0;
const BELOW: f64 = 24.0;

const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;max-width:1000px;margin:2em auto;\
    padding:0 1em;color:#222;background:#fff}h1{font-size:1.3em}h2{font-size:1.1em;margin-top:2em}\
    table{border-collapse:collapse}td,th{padding:.15em .8em .15em 0;text-align:left;\
    border-bottom:1px solid #ddd}svg{width:100%;height:auto}text{font:11px system-ui,sans-serif;\
    fill:#555}.bad{color:#b00020}@media(prefers-color-scheme:dark){body{color:#ddd;\
    background:#181818}td,th{border-color:#444}text{fill:#aaa}.bad{color:#ff6b6b}}";

/// One line of a plot.
struct Line<'a> {
    name: &'a str,
    color: &'a str,
    /// A number for each place, and what it is the number of.
    points: Vec<(f64, String)>,
}

pub fn page(p: &Page<'_>) -> String {
    let title = escaped(p.title);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><h1>{title}</h1>\n<h2>Outputs</h2>"
    );
    let outputs = p.outputs.iter().map(|(name, d)| {
        let numbers = [d.relative_l2(), d.max, d.cosine(), d.snr_db()];
        let mut cells = vec![name.clone()];
        cells.extend(numbers.map(|x| format!("{x:.4e}")));
        (d.is_broken(), cells)
    });
    html += &rows(&["output", "relative L2", "max", "cosine", "dB"], outputs);
    if !p.rows.is_empty() {
        html += "<h2>Error op by op, in the order they run</h2>";
        html += &plot(&op_lines(p.rows));
    }
    if let Some(growth) = p.growth {
        html += "<h2>Error over steps</h2>";
        let points = growth.0.iter().enumerate();
        let points = points.map(|(i, &e)| (e, format!("step {}", i + 1))).collect();
        html += &plot(&[Line { name: "outputs", color: "#0b6bcb", points }]);
    }
    if !p.costs.is_empty() {
        html += "<h2>What each rule costs</h2>";
        let costs = p.costs.iter().map(|c| {
            let row = c.rule.row();
            let (without, all) = (format!("{:.3e}", c.without), format!("{:.3e}", c.with_all));
            (false, vec![row.id.to_owned(), without, all, row.says.to_owned()])
        });
        html += &rows(&["without", "relative L2", "with all", "what it says"], costs);
    }
    if !p.ranges.is_empty() {
        html += "<h2>Margins to the engine's limits, the least first</h2>";
        let ranges = p.ranges.iter().take(200).map(|r| {
            let cells = vec![
                format!("%{}", r.value),
                r.op.clone(),
                super::apart::shown(r.largest),
                format!("{} {}", r.limit, r.limit_name),
                format!("{:.3}", r.margin()),
                r.source.clone(),
            ];
            (r.margin() <= 1.0, cells)
        });
        html += &rows(&["value", "op", "largest", "limit", "margin", "source"], ranges);
    }
    html + "</body></html>\n"
}

fn op_lines(rows: &[Row]) -> Vec<Line<'static>> {
    let name = |r: &Row| format!("{} %{} {}", r.op, r.value, r.source);
    let points = |f: &dyn Fn(&Row) -> f64| rows.iter().map(|r| (f(r), name(r))).collect();
    let inherited: Vec<_> = points(&|r| r.inherited.relative_l2());
    let mut lines = vec![Line { name: "inherited", color: "#0b6bcb", points: inherited }];
    if rows.iter().any(|r| r.own.is_some()) {
        let own = points(&|r| r.own_error().unwrap_or(0.0));
        lines.push(Line { name: "own", color: "#d9822b", points: own });
    }
    lines
}

/// Lines over places, on a logarithmic scale; what is not finite stands at the top.
fn plot(lines: &[Line<'_>]) -> String {
    let (width, height) = SIZE;
    let drawn = |x: f64| x.is_finite() && x > 0.0;
    let all = lines.iter().flat_map(|l| &l.points).map(|p| p.0).filter(|&x| drawn(x));
    let (low, high) = all.fold((f64::INFINITY, 0.0f64), |(l, h), x| (l.min(x), h.max(x)));
    if low > high {
        return "<p>No difference.</p>".into();
    }
    let (low, high) = (low.max(high * 1e-9).log10().floor(), high.log10().ceil());
    let high = if high > low { high } else { low + 1.0 };
    let n = lines.iter().map(|l| l.points.len()).max().unwrap_or(0).max(2);
    let x = |i: usize| LEFT + (width - LEFT - 8.0) * i as f64 / (n - 1) as f64;
    let bottom = height - BELOW;
    let y = |e: f64| {
        let share = ((e.log10() - low) / (high - low)).clamp(0.0, 1.0);
        bottom - share * (bottom - 12.0)
    };
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\">");
    for power in low as i32..=high as i32 {
        let at = y(10f64.powi(power));
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{width}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#8884\"/>\
             <text x=\"4\" y=\"{:.1}\">1e{power}</text>",
            at + 4.0
        );
    }
    for (k, line) in lines.iter().enumerate() {
        let color = line.color;
        let places = line.points.iter().enumerate().filter(|(_, p)| p.0 > 0.0 || p.0.is_nan());
        let (mut path, mut dots) = (String::new(), String::new());
        for (i, (e, name)) in places {
            let (at, up) = (x(i), if e.is_finite() { y(*e) } else { 6.0 });
            let _ = write!(path, "{at:.1},{up:.1} ");
            let radius = if e.is_finite() { 2 } else { 4 };
            let _ = write!(
                dots,
                "<circle cx=\"{at:.1}\" cy=\"{up:.1}\" r=\"{radius}\" fill=\"{color}\"><title>{} \
                 {e:.3e}</title></circle>",
                escaped(name)
            );
        }
        let _ = write!(
            svg,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-opacity=\".5\"/>\
             {dots}<text x=\"{}\" y=\"{}\" style=\"fill:{color}\">{}</text>",
            LEFT + 100.0 * k as f64,
            height - 6.0,
            escaped(line.name)
        );
    }
    svg + "</svg>"
}

fn rows(head: &[&str], rows: impl Iterator<Item = (bool, Vec<String>)>) -> String {
    let mut html = String::from("<table><tr>");
    head.iter().for_each(|h| html += &format!("<th>{h}</th>"));
    html += "</tr>";
    for (is_bad, cells) in rows {
        html += if is_bad { "<tr class=\"bad\">" } else { "<tr>" };
        cells.iter().for_each(|c| html += &format!("<td>{}</td>", escaped(c)));
        html += "</tr>";
    }
    html + "</table>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_break_the_page() {
        let growth = Growth(vec![1e-3, 2e-3, f64::INFINITY]);
        let (title, outputs) = ("<script>\"&", vec![("<b>".to_owned(), Apart::default())]);
        let page = page(&Page {
            title,
            outputs: &outputs,
            rows: &[],
            ranges: &[],
            costs: &[],
            growth: Some(&growth),
        });
        assert!(!page.contains("<script>") && !page.contains("<b>") && page.contains("&lt;b&gt;"));
        assert!(page.matches("<circle").count() == 3 && !page.contains("NaN"));
        assert!(!page.contains("http:") && !page.contains("https:"));
    }
}
