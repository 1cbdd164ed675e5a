//! Plots as SVG, in the width of a README, on white so that they can be read on a dark page too.

use std::{error::Error, path::Path};

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::table::rounded;
pub use plotters::style::RGBColor;

/// A part of a page.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Whether it could be drawn.
pub type Drawn = Result<(), Box<dyn Error>>;

// The colours of Okabe and Ito, which the colour-blind can tell apart: <https://jfly.uni-koeln.de/color/>.
/// order-closer.
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
/// order-closer in another state, or a second figure of it.
pub const SKY: RGBColor = RGBColor(86, 180, 233);
/// What is to be beaten.
pub const VERMILION: RGBColor = RGBColor(213, 94, 0);
/// Another way.
pub const ORANGE: RGBColor = RGBColor(230, 159, 0);
/// Another way.
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
/// Another way.
pub const PURPLE: RGBColor = RGBColor(204, 121, 167);
/// Another way.
pub const BLACK: RGBColor = RGBColor(0, 0, 0);
/// A bound, or what all others come before.
pub const GREY: RGBColor = RGBColor(140, 140, 140);

const WIDTH: u32 = 880;
const FONT: &str = "Helvetica, Arial, sans-serif";
const SMALL: u32 = 13;
const INK: RGBColor = RGBColor(50, 50, 50);
const RULE: RGBColor = RGBColor(225, 225, 225);

fn text(size: u32) -> TextStyle<'static> {
    (FONT, size).into_text_style(&(WIDTH, WIDTH)).color(&INK)
}

fn centred(size: u32, vertical: VPos) -> TextStyle<'static> {
    text(size).pos(Pos::new(HPos::Center, vertical))
}

/// Draws a page of this height, in pixels.
pub fn page(file: &Path, height: u32, draw: impl FnOnce(&Area) -> Drawn) {
    let drawn = || -> Drawn {
        let root = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        Ok(root.present()?)
    };
    drawn().unwrap_or_else(|error| panic!("{} can't be drawn: {error}", file.display()));
}

/// Names the colours in lines at the top; returns what is left of the area.
pub fn legend<'a>(area: &Area<'a>, entries: &[(&str, RGBColor)]) -> Result<Area<'a>, Box<dyn Error>> {
    // No font is asked how wide it is; this is an average.
    let width = |name: &str| 40 + name.chars().count() * 7;
    let room = usize::try_from(area.dim_in_pixel().0)?.saturating_sub(70);
    let whole: usize = entries.iter().map(|(name, _)| width(name)).sum();
    if let Some(half) = (whole > room).then_some(entries.len() / 2).filter(|half| *half > 0) {
        let rest = legend(area, &entries[..half])?;
        return legend(&rest, &entries[half..]);
    }
    let (top, rest) = area.split_vertically(34);
    let mut x = 70;
    for (name, color) in entries {
        top.draw(&Rectangle::new([(x, 13), (x + 12, 25)], color.filled()))?;
        top.draw(&Text::new((*name).to_owned(), (x + 18, 19), text(SMALL).pos(Pos::new(HPos::Left, VPos::Center))))?;
        x += i32::try_from(width(name))?;
    }
    Ok(rest)
}

/// Bars in groups, each group with a label of one or two lines below it and a note above it.
#[derive(Debug)]
pub struct Bars<'a> {
    /// What is shown.
    pub title: &'a str,
    /// The vertical axis, with its unit.
    pub y: &'a str,
    /// The labels of the groups.
    pub groups: Vec<[String; 2]>,
    /// The bars of each group, one for each colour.
    pub series: Vec<(RGBColor, Vec<f64>)>,
    /// A note above each group; may be empty.
    pub notes: Vec<String>,
    /// Whether bars stand on each other instead of side by side.
    pub stacked: bool,
}

impl Bars<'_> {
    /// Draws them.
    pub fn draw(&self, area: &Area) -> Drawn {
        let tops: Vec<f64> = (0..self.groups.len()).map(|group| self.top(group)).collect();
        let highest = tops.iter().copied().fold(f64::MIN_POSITIVE, f64::max) * 1.15;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, text(16))
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..self.groups.len() as f64, 0.0..highest)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(6)
            .y_desc(self.y)
            .bold_line_style(RULE)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .axis_desc_style(text(SMALL))
            .label_style(text(SMALL))
            .y_label_formatter(&|y| figure(*y))
            .draw()?;
        for (group, labels) in self.groups.iter().enumerate() {
            chart.draw_series(self.rectangles(group).into_iter().map(|(corners, color)| Rectangle::new(corners, color.filled())))?;
            let at = group as f64 + 0.5;
            for (line, label) in (0..).zip(labels) {
                let below = Text::new(label.clone(), (0, 6 + 16 * line), centred(SMALL, VPos::Top));
                chart.draw_series([EmptyElement::at((at, 0.0)) + below])?;
            }
            if let Some(note) = self.notes.get(group) {
                let above = Text::new(note.clone(), (0, -5), centred(SMALL, VPos::Bottom));
                chart.draw_series([EmptyElement::at((at, tops[group])) + above])?;
            }
        }
        Ok(())
    }

    fn top(&self, group: usize) -> f64 {
        let heights = self.series.iter().map(|(_, heights)| heights[group]);
        if self.stacked { heights.sum() } else { heights.fold(0.0, f64::max) }
    }

    fn rectangles(&self, group: usize) -> Vec<([(f64, f64); 2], RGBColor)> {
        let (left, room) = (group as f64 + 0.15, 0.7);
        let mut foot = 0.0;
        let bar = |(at, (color, heights)): (usize, &(RGBColor, Vec<f64>))| {
            let height = heights[group];
            let corners = if self.stacked {
                foot += height;
                [(left, foot - height), (left + room, foot)]
            } else {
                let width = room / self.series.len() as f64;
                [(left + at as f64 * width, 0.0), (left + (at as f64 + 0.94) * width, height)]
            };
            (corners, *color)
        };
        self.series.iter().enumerate().map(bar).collect()
    }
}

/// A line with a marker at each point.
#[derive(Debug)]
pub struct Line {
    /// Its colour.
    pub color: RGBColor,
    /// Its points; `true` where the figure is only a lower bound, marked by a triangle.
    pub points: Vec<(f64, f64, bool)>,
}

/// Lines over logarithmic axes, the horizontal one labelled where something was measured.
#[derive(Debug)]
pub struct LogLines<'a> {
    /// What is shown.
    pub title: &'a str,
    /// The horizontal axis, with its unit.
    pub x: &'a str,
    /// The vertical axis, with its unit.
    pub y: &'a str,
    /// The ends of the vertical axis, so that two charts can be compared.
    pub range: (f64, f64),
    /// The lines.
    pub lines: Vec<Line>,
}

impl LogLines<'_> {
    /// Draws them.
    pub fn draw(&self, area: &Area) -> Drawn {
        let xs = || self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let (left, right) = (xs().fold(f64::MAX, f64::min) / 1.5, xs().fold(f64::MIN_POSITIVE, f64::max) * 1.5);
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, text(16))
            .margin(8)
            .x_label_area_size(46)
            .y_label_area_size(72)
            .build_cartesian_2d((left..right).log_scale(), (self.range.0..self.range.1).log_scale())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .y_desc(self.y)
            .bold_line_style(RULE)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .axis_desc_style(text(SMALL))
            .label_style(text(SMALL))
            // A logarithmic axis has at least one label of its own, however few are asked for.
            .x_label_formatter(&|_| String::new())
            .set_tick_mark_size(LabelAreaPosition::Bottom, 0)
            .y_label_formatter(&|y| figure(*y))
            .draw()?;
        let mut measured: Vec<f64> = xs().collect();
        measured.sort_unstable_by(f64::total_cmp);
        measured.dedup();
        let middle = (left * right).sqrt();
        let below = measured.into_iter().map(|x| (x, 8, figure(x))).chain([(middle, 28, self.x.to_owned())]);
        chart.draw_series(
            below.map(|(x, down, label)| EmptyElement::at((x, self.range.0)) + Text::new(label, (0, down), centred(SMALL, VPos::Top))),
        )?;
        for line in &self.lines {
            let style = line.color.stroke_width(2);
            chart.draw_series(LineSeries::new(line.points.iter().map(|&(x, y, _)| (x, y)), style))?;
            chart.draw_series(line.points.iter().filter(|point| !point.2).map(|&(x, y, _)| Circle::new((x, y), 4, line.color.filled())))?;
            let bounds = line.points.iter().filter(|point| point.2);
            chart.draw_series(bounds.map(|&(x, y, _)| TriangleMarker::new((x, y), 7, line.color.filled())))?;
        }
        Ok(())
    }
}

/// A line over time, part of which is shaded.
#[derive(Debug)]
pub struct TimeLine<'a> {
    /// What is shown.
    pub title: &'a str,
    /// The horizontal axis, with its unit.
    pub x: &'a str,
    /// The vertical axis, with its unit.
    pub y: &'a str,
    /// The end of the vertical axis, so that charts can be compared.
    pub highest: f64,
    /// From when to when.
    pub shaded: (f64, f64),
    /// The line.
    pub points: &'a [(f64, f64)],
}

impl TimeLine<'_> {
    /// Draws them.
    pub fn draw(&self, area: &Area) -> Drawn {
        let times = || self.points.iter().map(|point| point.0);
        let highest = self.highest.max(1.0) * 1.1;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, text(16))
            .margin(8)
            .x_label_area_size(46)
            .y_label_area_size(72)
            .build_cartesian_2d(times().fold(f64::MAX, f64::min)..times().fold(f64::MIN, f64::max), 0.0..highest)?;
        chart.draw_series([Rectangle::new([(self.shaded.0, 0.0), (self.shaded.1, highest)], RULE.mix(0.5).filled())])?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .bold_line_style(RULE)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .axis_desc_style(text(SMALL))
            .label_style(text(SMALL))
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| figure(*y))
            .draw()?;
        chart.draw_series(LineSeries::new(self.points.iter().copied(), BLUE.stroke_width(2)))?;
        Ok(())
    }
}

/// The powers of ten between which all points lie.
pub fn decades(lines: &[Line]) -> (f64, f64) {
    let ys = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.1.max(0.01)));
    (10f64.powf(ys().fold(f64::MAX, f64::min).log10().floor()), 10f64.powf(ys().fold(0.01, f64::max).log10().ceil()))
}

/// A figure on an axis.
fn figure(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value < 1.0 => format!("{value:.2}").trim_end_matches('0').to_owned(),
        value if value < 10.0 => format!("{value:.1}").trim_end_matches(".0").to_owned(),
        value => rounded(value),
    }
}
