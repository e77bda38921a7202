//! Charts as SVG, all with the same time axis.

use std::fmt::Write as _;

/// The whole width of a chart, the room for labels at its left, and what is left free at its right.
const WIDTH: f64 = 1_120.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 16.0;
/// Below the plot, for the labels of the time axis.
const BOTTOM: f64 = 34.0;
const TOP: f64 = 8.0;
/// About so many labels fit on the time axis.
const TIME_LABELS: f64 = 10.0;

/// A chart in the making.
#[derive(Debug)]
pub(super) struct Chart {
    svg: String,
    seconds: f64,
    height: f64,
}

impl Chart {
    /// A chart of so many seconds, its plot so high, with a name for those who can't see it.
    pub(super) fn new(name: &str, seconds: f64, height: f64) -> Self {
        let mut svg = String::new();
        let all = TOP + height + BOTTOM;
        add(
            &mut svg,
            format_args!("<svg viewBox=\"0 0 {WIDTH} {all}\" role=\"img\" aria-label=\"{}\">\n", escaped(name)),
        );
        let mut chart = Self { svg, seconds: seconds.max(1.0), height };
        chart.time_axis();
        chart
    }

    fn x(&self, second: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (second / self.seconds).clamp(0.0, 1.0)
    }

    /// From 0 at the bottom to 1 at the top.
    fn y(&self, share: f64) -> f64 {
        TOP + self.height * (1.0 - share.clamp(0.0, 1.0))
    }

    fn time_axis(&mut self) {
        let step = nice_step(self.seconds / TIME_LABELS);
        let bottom = self.y(0.0);
        let mut second = 0.0;
        while second <= self.seconds {
            let x = self.x(second);
            let class = if second == 0.0 { "axis" } else { "grid" };
            self.line(class, (x, TOP), (x, bottom));
            self.text("middle", (x, bottom + 14.0), &format!("{second} s"));
            second += step;
        }
        self.line("axis", (LEFT, bottom), (WIDTH - RIGHT, bottom));
        self.text("end", (WIDTH - RIGHT, bottom + 28.0), "seconds since the begin of the run");
    }

    /// A horizontal line with its label, at a share of the height.
    pub(super) fn level(&mut self, share: f64, label: &str) {
        let y = self.y(share);
        self.line("grid", (LEFT, y), (WIDTH - RIGHT, y));
        self.text("end", (LEFT - 6.0, y + 4.0), label);
    }

    /// What the vertical axis counts.
    pub(super) fn unit(&mut self, unit: &str) {
        self.text("start", (2.0, TOP + 10.0), unit);
    }

    /// A label beside a row.
    pub(super) fn row_label(&mut self, middle: f64, label: &str) {
        self.text("end", (LEFT - 6.0, self.y(middle) + 4.0), label);
    }

    /// A box from one second to another and from one share of the height to another, at least a little wide.
    pub(super) fn area(&mut self, class: &str, seconds: (f64, f64), shares: (f64, f64), tip: &str) {
        let (x, y) = (self.x(seconds.0), self.y(shares.1));
        let (width, height) = ((self.x(seconds.1) - x).max(1.5), self.y(shares.0) - y);
        add(
            &mut self.svg,
            format_args!(
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{}</title></rect>\n",
                escaped(tip)
            ),
        );
    }

    /// A line through points of (second, share of the height); a gap in the seconds is a gap in the line.
    pub(super) fn curve(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        let mut last: Option<f64> = None;
        for (second, share) in points {
            let command = if last.is_some_and(|last| second - last < 1.5) { 'L' } else { 'M' };
            add(&mut path, format_args!("{command}{:.1} {:.1}", self.x(*second), self.y(*share)));
            // A point without neighbours would not be seen.
            if command == 'M' {
                path.push_str("h1.5");
            }
            last = Some(*second);
        }
        add(&mut self.svg, format_args!("<path class=\"{class}\" d=\"{path}\"/>\n"));
    }

    /// A moment, over the whole height.
    pub(super) fn moment(&mut self, class: &str, second: f64) {
        let x = self.x(second);
        self.line(class, (x, TOP), (x, self.y(0.0)));
    }

    /// The chart.
    pub(super) fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        add(
            &mut self.svg,
            format_args!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"),
        );
    }

    fn text(&mut self, anchor: &str, (x, y): (f64, f64), text: &str) {
        let text = escaped(text);
        add(&mut self.svg, format_args!("<text text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n"));
    }
}

/// 1, 2 or 5 times a power of ten, not below what is wanted.
pub(super) fn nice_step(wanted: f64) -> f64 {
    let power = 10_f64.powf(wanted.max(1.0).log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= wanted);
    factor.unwrap_or(10.0) * power
}

/// As text of HTML or SVG.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Adds to a text.
pub(super) fn add(text: &mut String, words: std::fmt::Arguments<'_>) {
    let _infallible = text.write_fmt(words);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_an_axis_are_round() {
        let of = |wanted: f64| format!("{}", nice_step(wanted));
        assert_eq!([of(0.3), of(3.0), of(6.0), of(60.0), of(180.0)], ["1", "5", "10", "100", "200"]);
    }

    #[test]
    fn a_curve_breaks_where_seconds_are_missing() {
        let mut chart = Chart::new("c", 10.0, 100.0);
        chart.curve("k", &[(0.0, 0.0), (1.0, 1.0), (5.0, 0.5)]);
        let svg = chart.finish();
        let path = svg.lines().find(|line| line.contains("<path")).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1), "{path}");
    }

    #[test]
    fn no_text_becomes_markup() {
        let mut chart = Chart::new("a\"b", 1.0, 10.0);
        chart.area("k", (0.0, 1.0), (0.0, 1.0), "<script>&");
        let svg = chart.finish();
        assert!(svg.contains("&lt;script&gt;&amp;") && svg.contains("a&quot;b"), "{svg}");
    }
}
