//! The figures as lines of text.

use console::{measure_text_width, style};

use crate::{
    ops::{Figures, MOST_DUE, PauseFigures, RuleFigures},
    order::Printable,
};

/// A bar of so many eighths.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Where values begin.
const COLUMN: usize = 16;

/// All of them, for lines of about this width.
pub(super) fn lines(figures: &Figures, width: usize) -> Vec<String> {
    let Figures { version, instance, now, uptime_s, parts, rules, targets, read_only, .. } = figures;
    let title = format!("{} {version}  {}  up {}", style("order-closer").bold(), Printable(instance), long(*uptime_s as f64 * 1e3));
    let clock = now.get(11..19).unwrap_or_default();
    let gap = width.saturating_sub(measure_text_width(&title) + clock.len() + 4).max(2);
    let mut lines = vec![format!("{title}{}{clock} UTC", " ".repeat(gap))];
    lines.extend(state(figures));
    for rule in rules {
        lines.push(String::new());
        lines.extend(of_rule(rule, rules.len() == 1, width));
    }
    lines.push(String::new());
    for part in parts {
        lines.push(row(&part.name, &format!("{}  {}", mark(part.ok, &part.state), style(Printable(&part.says)).dim())));
    }
    for rule in rules {
        let name = if rules.len() == 1 { "members".to_owned() } else { format!("members, {}", rule.name) };
        let others = if rule.others == 1 { "1 other instance".into() } else { format!("{} other instances", rule.others) };
        lines.push(row(&name, &format!("{}  {}", mark(rule.fit, if rule.fit { "fit" } else { "unfit" }), style(others).dim())));
    }
    for target in targets {
        let error = target.last_error.as_deref().filter(|_| target.state != "ok").unwrap_or_default();
        let counts = format!("{} waiting, {} given up", up_to(target.waiting, 10_000), up_to(target.dead, 10_000));
        let state = mark(target.state == "ok", &target.state);
        lines.push(row(&format!("to {}", Printable(&target.name)), &format!("{state}  {counts}  {}", style(Printable(error)).dim())));
    }
    for rule in rules.iter().filter(|rule| !read_only && !rule.recent.latest.is_empty()) {
        lines.push(String::new());
        let closed = if rules.len() == 1 { "latest closures".to_owned() } else { format!("latest closures, {}", rule.name) };
        lines.push(style(closed).bold().to_string());
        let ids: Vec<String> = rule.recent.latest.iter().map(|closure| Printable(&closure.id).to_string()).collect();
        let widest = ids.iter().map(|id| measure_text_width(id)).max().unwrap_or(0).min(40);
        for (closure, id) in rule.recent.latest.iter().zip(ids) {
            let at = closure.at.get(11..19).unwrap_or_default();
            let id = console::pad_str(&id, widest, console::Alignment::Left, Some("…"));
            lines.push(format!("  {at}  {id}  {:>9} late  {}", long(closure.lateness_ms), style(Printable(&closure.trigger)).dim()));
        }
    }
    lines
}

/// What is wrong, if anything is.
fn state(figures: &Figures) -> Vec<String> {
    let mut lines = Vec::new();
    let late = figures.rules.iter().filter_map(|rule| rule.overdue).any(|overdue| overdue.oldest_s > 3.0);
    match figures.ready {
        Some(false) => lines.push(alarm("orders are not closed")),
        Some(true) | None if late => lines.push(alarm("orders are overdue")),
        Some(true) if figures.rules.iter().all(|rule| rule.pause.is_none()) => {
            lines.push(style("orders close on time").green().to_string());
        }
        Some(true) | None => {}
    }
    lines.extend(figures.rules.iter().filter_map(|rule| Some(style(paused(&rule.name, rule.pause.as_ref()?)).yellow().to_string())));
    lines.extend(figures.missing.iter().map(|what| alarm(what)));
    lines.extend(figures.degraded.iter().map(|what| style(Printable(what)).yellow().to_string()));
    lines
}

fn paused(name: &str, pause: &PauseFigures) -> String {
    let what = pause.rate.map_or_else(|| "paused".to_owned(), |rate| format!("limited to {rate} orders a second"));
    let since = pause.since.get(11..19).map(|since| format!(" since {since} UTC")).unwrap_or_default();
    let left = pause.seconds_left.map(|left| format!(" for another {}", long(left as f64 * 1e3))).unwrap_or_default();
    let by = if pause.who.is_empty() { String::new() } else { format!(", by {}: {}", Printable(&pause.who), Printable(&pause.reason)) };
    format!("{name}: closing is {what}{since}{left}{by}")
}

fn of_rule(rule: &RuleFigures, alone: bool, width: usize) -> Vec<String> {
    let recent = &rule.recent;
    let mut lines = Vec::new();
    if !alone {
        lines.push(format!("{}  {}", style(&rule.name).bold(), style(format!("table {}", rule.table)).dim()));
    }
    let unknown = || "not counted yet".to_owned();
    lines.push(row("pending", &rule.pending.map_or_else(unknown, |pending| up_to(pending, 100_000))));
    let due = rule.due.as_ref().map_or_else(unknown, |due| {
        let all = due.iter().sum::<u64>();
        let more = if due.iter().any(|count| *count >= u64::from(MOST_DUE)) { "+" } else { "" };
        with_plot(&format!("{}{more} in the next hour", whole(all)), &plot(due.iter().map(|count| *count as f64)))
    });
    lines.push(row("due", &due));
    let overdue = rule.overdue.map_or_else(unknown, |overdue| {
        let states = [
            ("open", overdue.open),
            ("held", overdue.held),
            ("refused", overdue.resting),
            ("paused", overdue.paused),
            ("disputed", overdue.disputed),
            ("given up", overdue.dead),
            ("old", overdue.old),
        ];
        let shown: Vec<String> = states
            .iter()
            .filter(|(name, count)| *count > 0 || *name == "open")
            .map(|(name, count)| format!("{} {name}", up_to(*count, 10_000)))
            .collect();
        let oldest = if overdue.open > 0 { format!("; the oldest open one for {}", long(overdue.oldest_s * 1e3)) } else { String::new() };
        format!("{}{oldest}", shown.join(", "))
    });
    lines.push(row("overdue", &overdue));
    let tens: Vec<u64> = recent.per_second.iter().rev().take(10).copied().collect();
    let speed = tens.iter().sum::<u64>() as f64 / tens.len().max(1) as f64;
    // As many of the last seconds as there is room for.
    let room = width.saturating_sub(COLUMN + 34).clamp(12, recent.per_second.len().max(12));
    let seconds = recent.per_second.iter().skip(recent.per_second.len().saturating_sub(room)).map(|count| *count as f64);
    lines.push(row("closed", &with_plot(&format!("{} in 1 h, {speed:.1}/s", whole(recent.hour)), &plot(seconds))));
    if let Some(lateness) = recent.hour_ms {
        let text = format!("p50 {}  p99 {}  max {}", long(lateness.p50), long(lateness.p99), long(lateness.max));
        lines.push(row("lateness", &text));
        // By its order of magnitude, from a millisecond on; a minute without closures is empty.
        let minutes = recent.minutes_ms.iter().map(|minute| minute.map_or(0.0, |minute| (minute.p99.max(1.0).log10() + 1.0).max(0.1)));
        lines.push(row("", &with_plot("p99 by minutes", &plot(minutes))));
        let share = |count: u64| format!("{:.1} %", count as f64 / recent.hour.max(1) as f64 * 100.0);
        let mut triggers: Vec<(&String, &u64)> = recent.triggers.iter().collect();
        triggers.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let triggers: Vec<String> =
            triggers.into_iter().map(|(name, count)| format!("{} {} ({})", Printable(name), whole(*count), share(*count))).collect();
        lines.push(row("triggers", &triggers.join("  ")));
    }
    if let Some(dead) = rule.dead_letters {
        lines.push(row("dead letters", &format!("{} orders", up_to(dead, 10_000))));
    }
    lines
}

fn row(name: &str, value: &str) -> String {
    format!("{:<COLUMN$}{value}", name)
}

fn with_plot(text: &str, plot: &str) -> String {
    format!("{text:<32}{}", style(plot).cyan())
}

/// What is wrong.
pub(super) fn alarm(text: &str) -> String {
    style(Printable(text)).red().bold().to_string()
}

fn mark(ok: bool, text: &str) -> String {
    let text = Printable(text);
    if ok { style(format!("✓ {text}")).green().to_string() } else { style(format!("✗ {text}")).red().to_string() }
}

/// A bar for each value; what is more than nothing is seen.
fn plot(values: impl Iterator<Item = f64> + Clone) -> String {
    let most = values.clone().fold(0.0, f64::max);
    let bar = |value: f64| {
        let eighths = if most > 0.0 { (value / most * 8.0).ceil() } else { 0.0 };
        let at = (0..9).rev().find(|at| f64::from(*at) <= eighths).unwrap_or(0);
        BARS[usize::try_from(at).unwrap_or(0)]
    };
    values.map(bar).collect()
}

/// A time in milliseconds, as people say it.
pub(super) fn long(ms: f64) -> String {
    const UNITS: [(f64, f64, &str); 5] =
        [(1e3, 1.0, "ms"), (60e3, 1e3, "s"), (3_600e3, 60e3, "min"), (48.0 * 3_600e3, 3_600e3, "h"), (f64::INFINITY, 86_400e3, "d")];
    let (_, unit, name) = UNITS.iter().find(|(below, ..)| ms < *below).unwrap_or(&UNITS[4]);
    let value = ms / unit;
    if value < 10.0 && value.fract() != 0.0 { format!("{value:.1} {name}") } else { format!("{value:.0} {name}") }
}

fn up_to(number: u64, most: u64) -> String {
    format!("{}{}", whole(number), if number >= most { "+" } else { "" })
}

/// A number with its thousands apart.
fn whole(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(whole(number), text);
        }
        for (ms, text) in
            [(0.0, "0 ms"), (3.25, "3.2 ms"), (999.4, "999 ms"), (1_500.0, "1.5 s"), (90e3, "1.5 min"), (86_400e3, "24 h"), (1e9, "12 d")]
        {
            assert_eq!(long(ms), text);
        }
        assert_eq!((up_to(9_999, 10_000), up_to(10_000, 10_000)), ("9,999".into(), "10,000+".into()));
    }

    #[test]
    fn a_plot_shows_whatever_is_not_nothing() {
        assert_eq!(plot([0.0, 1.0, 50.0, 100.0].into_iter()), " ▁▄█");
        assert_eq!(plot([0.0, 0.0].into_iter()), "  ");
    }
}
