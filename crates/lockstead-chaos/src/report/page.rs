//! The run as a page that a person can look at: one file, nothing from elsewhere.

use std::collections::BTreeMap;
use std::fmt::Arguments;

use super::chart::{Chart, add, escaped, nice_step};
use super::figures::{FaultCount, as_ms};
use super::series::{self, Outcomes, Point};
use super::summary::{Conclusion, Summary};
use crate::run::Run;

const STYLE: &str = include_str!("page.css");

const LATENCY_HEIGHT: f64 = 110.0;
const OUTCOMES_HEIGHT: f64 = 200.0;
const ROW_HEIGHT: f64 = 18.0;
/// The latency axis is logarithmic and begins here.
const LATENCY_MS_MIN: f64 = 0.1;

/// The page.
pub fn page(run: &Run, summary: &Summary) -> String {
    let mut page = String::new();
    let html: &mut dyn FnMut(Arguments<'_>) = &mut |words| add(&mut page, words);
    html(format_args!("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"));
    html(format_args!("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"));
    html(format_args!(
        "<title>{}, seed {}</title>\n<style>\n{STYLE}</style>\n</head>\n",
        summary.title(),
        summary.seed
    ));
    html(format_args!("<body>\n<h1>{}</h1>\n{}", summary.title(), headline(summary)));
    html(format_args!("<h2>What was done, and who led</h2>\n{}", timeline(run, summary)));
    html(format_args!("<h2>What became of the calls</h2>\n{}{}", legend(), outcomes(run)));
    html(format_args!("<h2>Latency, apart from waiting for a lock</h2>\n"));
    html(format_args!("<p class=\"legend\"><span class=\"key p50\"></span>half are quicker "));
    html(format_args!(
        "<span class=\"key p99\"></span>99 % are quicker <span class=\"key leaderless\"></span>no leader</p>\n"
    ));
    let latencies = series::latencies(&run.history.calls);
    let highest_ms = latencies.values().flatten().map(|point| point.p99_ms).fold(1.0, f64::max);
    for (operation, points) in &latencies {
        html(format_args!("<h3>{}</h3>\n{}", escaped(operation), latency(run, operation, points, highest_ms)));
    }
    html(format_args!("<h2>All figures</h2>\n<pre>{}</pre>\n</body>\n</html>\n", escaped(&summary.to_string())));
    page
}

fn headline(summary: &Summary) -> String {
    let class = match summary.conclusion {
        Conclusion::Ok => "ok",
        Conclusion::Violation => "violation",
        Conclusion::Undecided => "undecided",
    };
    let all: u64 = summary.operations.values().flat_map(BTreeMap::values).sum();
    let faults: u64 = summary.faults.values().map(|count: &FaultCount| count.took_effect).sum();
    let figures = [
        (format!("{} {}", summary.nodes, summary.nodes_are()), format!("{:.0} s", summary.seconds)),
        ("operations".to_owned(), all.to_string()),
        ("unknown outcomes".to_owned(), summary.unknown.to_string()),
        ("faults that took effect".to_owned(), faults.to_string()),
        ("elections".to_owned(), summary.elections.to_string()),
        ("without a leader".to_owned(), format!("{:.1} s", as_ms(summary.leaderless.total_ms))),
        ("longest time without any decision".to_owned(), format!("{:.2} s", as_ms(summary.longest_pause_ms))),
    ];
    let mut html = String::new();
    add(&mut html, format_args!("<p class=\"verdict {class}\">{}</p>\n<dl>\n", summary.conclusion));
    for (name, value) in figures {
        add(&mut html, format_args!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"));
    }
    add(&mut html, format_args!("</dl>\n<p>Again: <code>{}</code></p>\n", escaped(&summary.repeat)));
    html
}

fn seconds_of(us: u64) -> f64 {
    as_ms(us) / 1_000.0
}

fn span(begin_us: u64, end_us: u64) -> (f64, f64) {
    (seconds_of(begin_us), seconds_of(end_us))
}

/// Each kind of faults has a row; at the bottom, the times without a leader and the changes of leader.
fn timeline(run: &Run, summary: &Summary) -> String {
    let kinds: Vec<&String> = summary.faults.keys().collect();
    let rows = u32::try_from(kinds.len()).unwrap_or(u32::MAX).saturating_add(2);
    let share = 1.0 / f64::from(rows);
    let mut chart = Chart::new("faults and leaders", run.worked.as_secs_f64(), ROW_HEIGHT * f64::from(rows));
    // From the bottom: row 0 is the first.
    let row = |number: usize| {
        let low = share * f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        (low + share * 0.12, low + share * 0.88)
    };
    let middle = |number| f64::midpoint(row(number).0, row(number).1);
    chart.row_label(middle(0), "no leader");
    for gap in &run.history.leaderless {
        let (begin, end) = span(gap.begin_us, gap.end_us);
        chart.area("leaderless", (begin, end), row(0), &format!("no leader, {:.2} s", end - begin));
    }
    chart.row_label(middle(1), "new leader");
    // The first is the one that the run began with.
    for office in run.offices.iter().skip(1) {
        let at = seconds_of(office.seen_us);
        let tip = format!("node {} leads in term {}, {at:.2} s", office.leader, office.term);
        chart.area("office", (at, at), row(1), &tip);
    }
    for (number, kind) in kinds.iter().rev().enumerate() {
        chart.row_label(middle(number + 2), kind);
        for fault in run.history.faults.iter().filter(|fault| fault.kind == **kind) {
            let class = if fault.took_effect { "fault" } else { "fault vain" };
            let (begin, end) = span(fault.begin_us, fault.end_us);
            let effect = if fault.took_effect { "" } else { ", without effect" };
            let tip = format!("{kind}, {}{effect}, from {begin:.2} s to {end:.2} s", fault.target);
            chart.area(class, (begin, end), row(number + 2), &tip);
        }
    }
    chart.finish()
}

fn legend() -> String {
    let mut html = "<p class=\"legend\">".to_owned();
    for (number, name) in Outcomes::NAMES.iter().enumerate() {
        add(&mut html, format_args!("<span class=\"key outcome{number}\"></span>{name} "));
    }
    html.push_str("</p>\n");
    html
}

fn outcomes(run: &Run) -> String {
    let series = series::outcomes(&run.history.calls, &run.unreachable_us, run.worked.as_secs());
    let highest = series.iter().map(|outcomes| outcomes.stack().iter().sum::<u64>()).max().unwrap_or(1).max(1);
    let step = nice_step(as_f64(highest) / 4.0);
    let top = (as_f64(highest) / step).ceil() * step;
    let mut chart = Chart::new("outcomes", run.worked.as_secs_f64(), OUTCOMES_HEIGHT);
    chart.unit("calls a second");
    let mut level = 0.0;
    while level <= top {
        chart.level(level / top, &format!("{level}"));
        level += step;
    }
    for (second, outcomes) in series.iter().enumerate() {
        let begin = as_f64(u64::try_from(second).unwrap_or(u64::MAX));
        let mut below = 0;
        for (number, count) in outcomes.stack().into_iter().enumerate().filter(|(_, count)| *count > 0) {
            let tip = format!("second {second}: {} {count}", Outcomes::NAMES[number]);
            let shares = (as_f64(below) / top, as_f64(below + count) / top);
            chart.area(&format!("outcome{number}"), (begin, begin + 1.0), shares, &tip);
            below += count;
        }
    }
    chart.finish()
}

fn latency(run: &Run, operation: &str, points: &[Point], highest_ms: f64) -> String {
    let decades = (highest_ms / LATENCY_MS_MIN).log10().ceil().max(1.0);
    let share = |ms: f64| (ms.max(LATENCY_MS_MIN) / LATENCY_MS_MIN).log10() / decades;
    let mut chart = Chart::new(&format!("latency of {operation}"), run.worked.as_secs_f64(), LATENCY_HEIGHT);
    chart.unit("ms");
    for gap in &run.history.leaderless {
        chart.area("leaderless", span(gap.begin_us, gap.end_us), (0.0, 1.0), "no leader");
    }
    for office in run.offices.iter().skip(1) {
        chart.moment("elected", seconds_of(office.seen_us));
    }
    let mut ms = LATENCY_MS_MIN;
    while share(ms) <= 1.0 {
        chart.level(share(ms), &format!("{ms}"));
        ms *= 10.0;
    }
    // What ends after the run has no place on the axis.
    let within = || points.iter().filter(|point| point.second < run.worked.as_secs());
    let of = |value: fn(&Point) -> f64| -> Vec<(f64, f64)> {
        within().map(|point| (as_f64(point.second) + 0.5, share(value(point)))).collect()
    };
    chart.curve("p99", &of(|point| point.p99_ms));
    chart.curve("p50", &of(|point| point.p50_ms));
    chart.finish()
}

#[expect(clippy::cast_precision_loss, reason = "seconds and calls of a run are far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}
