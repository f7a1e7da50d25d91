//! A drawing of points, in characters.

use std::io::Write;

use unicode_width::UnicodeWidthStr as _;

use crate::{terminal, wording};

/// A point: where it is on each axis, from 0 to 1.
pub type Point = (f64, f64);

/// Which characters the terminal has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dots {
    /// Eight to a character.
    Braille,
    /// One to a character.
    Ascii,
}

impl Dots {
    /// How many there are in a character, side by side and one below the other.
    fn in_character(self) -> (usize, usize) {
        match self {
            Self::Braille => (2, 4),
            Self::Ascii => (1, 1),
        }
    }

    /// The column of characters in which a dot at this place is.
    fn column(self, place: f64, width: usize) -> usize {
        let (across, _) = self.in_character();
        cell(place, width * across) / across
    }

    /// The row of characters in which a dot at this place is.
    fn row(self, place: f64, height: usize) -> usize {
        let (_, down) = self.in_character();
        cell(1.0 - place, height * down) / down
    }
}

/// What stands along a side of the drawing.
pub enum PlotAxis {
    /// Numbers from one to another.
    Numbers { low: f64, high: f64, scale: Scale },
    /// Names, at the same distance from each other.
    Names(Vec<String>),
}

/// How numbers are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Logarithmic,
}

/// Numbers over so many times the lowest one are laid out by their logarithms.
const TWO_DECADES: f64 = 100.0;

impl PlotAxis {
    /// One on which all of these numbers have a place.
    pub fn of_numbers(numbers: impl Iterator<Item = f64> + Clone) -> Self {
        let low = numbers.clone().fold(f64::INFINITY, f64::min);
        let high = numbers.fold(f64::NEG_INFINITY, f64::max);
        let scale =
            if low > 0.0 && high / low > TWO_DECADES { Scale::Logarithmic } else { Scale::Linear };
        Self::Numbers { low, high, scale }
    }

    pub fn is_logarithmic(&self) -> bool {
        let logarithmic = Scale::Logarithmic;
        matches!(self, Self::Numbers { scale, .. } if *scale == logarithmic)
    }

    /// Where a number is, from 0 to 1.
    pub fn place(&self, number: f64) -> f64 {
        let Self::Numbers { low, high, scale } = self else {
            return 0.0;
        };
        // Halves, since the distance of two numbers may be none.
        let [low, high, number] = [*low, *high, number].map(|it| match scale {
            Scale::Linear => it / 2.0,
            Scale::Logarithmic => it.ln(),
        });
        let place = (number - low) / (high - low);
        if place.is_finite() {
            place.clamp(0.0, 1.0)
        } else {
            // All are the same.
            0.5
        }
    }

    /// Where a name is, from 0 to 1.
    pub fn place_of_name(&self, name: &str) -> f64 {
        let Self::Names(names) = self else {
            return 0.0;
        };
        let at = names.iter().position(|it| it == name).unwrap_or(0);
        place_among(at, names.len())
    }

    /// About so many labels with their places: round numbers.
    fn labels(&self, count: usize) -> Vec<(f64, String)> {
        match self {
            Self::Names(names) => {
                let places = (0..names.len()).map(|at| place_among(at, names.len()));
                places.zip(names.iter().cloned()).collect()
            }
            Self::Numbers { low, high, .. } if low.total_cmp(high).is_eq() => {
                vec![(0.5, wording::number(*low))]
            }
            &Self::Numbers { low, high, scale } => {
                let numbers = match scale {
                    Scale::Linear => round_numbers(low, high, count),
                    Scale::Logarithmic => powers_of_ten(low, high, count),
                };
                let label = |number: f64| (self.place(number), wording::number(number));
                numbers.into_iter().map(label).collect()
            }
        }
    }
}

/// About so many numbers in this range that are easy to read: 0.2, 0.4, 0.6.
fn round_numbers(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = high / cast(count) - low / cast(count);
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let Some(step) = steps.into_iter().find(|step| *step >= rough) else {
        return vec![low, high];
    };
    // Multiplied and not added up, so that 0.3 is not 0.30000000000000004; and the ends
    // belong to it, however they were rounded.
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    let marks = (0..=count).map(|at| first + cast(at));
    let marks = marks.take_while(|mark| *mark <= last);
    let numbers: Vec<f64> = marks.map(|mark| mark * step).collect();
    if numbers.iter().all(|number| number.is_finite()) { numbers } else { vec![low, high] }
}

/// At most so many powers of ten in this range.
fn powers_of_ten(low: f64, high: f64, count: usize) -> Vec<f64> {
    #[expect(clippy::cast_possible_truncation, reason = "floats have exponents of three digits")]
    let [first, last] = [(low.log10() - 1e-9).ceil() as i32, (high.log10() + 1e-9).floor() as i32];
    let all = usize::try_from(last - first + 1).unwrap_or(1);
    let powers = (first..=last).step_by(all.div_ceil(count.max(1)));
    // Read rather than computed: the nearest float to it.
    let number = |power: i32| format!("1e{power}").parse().unwrap_or(f64::MAX);
    powers.map(number).collect()
}

/// The middle of one of so many parts.
fn place_among(at: usize, count: usize) -> f64 {
    fraction(2 * at + 1, 2 * count)
}

fn fraction(part: usize, whole: usize) -> f64 {
    cast(part) / cast(whole.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "counts of characters and tests")]
fn cast(count: usize) -> f64 {
    count as f64
}

/// The points of a line from one to another, as close as any terminal can show them.
pub fn line(from: Point, to: Point) -> impl Iterator<Item = Point> {
    const STEPS: f64 = 400.0;
    let (right, up) = (to.0 - from.0, to.1 - from.1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 400")]
    let steps = (right.abs().max(up.abs()) * STEPS).ceil().clamp(1.0, STEPS) as usize;
    (1..=steps).map(move |step| {
        let part = fraction(step, steps);
        (from.0 + right * part, from.1 + up * part)
    })
}

/// Prints a drawing that is as large as the terminal, with a line above and one below it.
pub fn print(
    out: &mut impl Write,
    title: &str,
    points: &[Point],
    (x, y): (&PlotAxis, &PlotAxis),
    below: Option<String>,
) -> anyhow::Result<()> {
    let (columns, rows) = terminal::size();
    // The title, what is below, and a line for the shell.
    let size = (columns.saturating_sub(1), rows.saturating_sub(3));
    let dots = if terminal::has_unicode() { Dots::Braille } else { Dots::Ascii };
    let drawn = draw(points, x, y, size, dots);
    for line in [title.to_owned()].into_iter().chain(drawn).chain(below) {
        let line = wording::name(line);
        writeln!(out, "{}", wording::clipped(&line, terminal::line_width()))?;
    }
    Ok(())
}

/// The lines of a drawing of at most so many columns and rows.
fn draw(
    points: &[Point],
    x: &PlotAxis,
    y: &PlotAxis,
    (columns, rows): (usize, usize),
    dots: Dots,
) -> Vec<String> {
    // Under it are the axis and its labels.
    let height = rows.saturating_sub(2).max(3);
    let labels = y.labels((height / 5).clamp(2, 9) + 1);
    let margin = labels.iter().map(|(_, label)| label.width()).max();
    let margin = margin.unwrap_or(0) + 1;
    let width = columns.saturating_sub(margin + 1).max(10);
    let [corner, side, tick, floor, floor_tick] = match dots {
        Dots::Braille => ["└", "│", "┤", "─", "┬"],
        Dots::Ascii => ["+", "|", "+", "-", "+"],
    };
    let mut lines: Vec<String> = Canvas::with(points, width, height, dots)
        .lines()
        .map(|line| format!("{:margin$}{side}{line}", ""))
        .collect();
    for (place, label) in labels {
        let row = dots.row(place, height);
        let line = lines[row].replacen(side, tick, 1);
        let rest = line.get(margin..).unwrap_or_default();
        lines[row] = format!("{label:>width$} {rest}", width = margin - 1);
    }
    let (ticks, names) = floor_labels(x, width, dots);
    let floor: String =
        (0..width).map(|at| if ticks.contains(&at) { floor_tick } else { floor }).collect();
    lines.push(format!("{:margin$}{corner}{floor}", ""));
    lines.push(format!("{:margin$} {names}", "").trim_end().to_owned());
    lines
}

/// The character that a place is in, of so many.
fn cell(place: f64, count: usize) -> usize {
    let at = place * cast(count.saturating_sub(1));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to the count"
    )]
    (at.round() as usize).min(count.saturating_sub(1))
}

/// Where the axis below has ticks, and its labels: those that have room.
fn floor_labels(x: &PlotAxis, width: usize, dots: Dots) -> (Vec<usize>, String) {
    let labels = x.labels((width / 16).clamp(2, 8));
    let room = match x {
        PlotAxis::Names(names) => (width / names.len().max(1)).saturating_sub(1).max(1),
        PlotAxis::Numbers { .. } => width,
    };
    let (mut ticks, mut text, mut end) = (Vec::new(), String::new(), 0);
    for (place, label) in labels {
        let at = dots.column(place, width);
        let label = wording::clipped(&label, room);
        let label_width = label.width();
        let start = at.saturating_sub(label_width / 2);
        let start = start.min(width.saturating_sub(label_width));
        if end > 0 && start < end + 1 {
            continue;
        }
        text.extend(std::iter::repeat_n(' ', start - end));
        text += &label;
        end = start + label_width;
        ticks.push(at);
    }
    (ticks, text)
}

/// Characters to put dots in.
struct Canvas {
    width: usize,
    dots: Dots,
    /// The dots of each character, as Braille numbers them.
    cells: Vec<u8>,
}

/// With fewer points than this, one takes four dots: a single one is hard to see.
const FEW: usize = 200;

impl Canvas {
    fn with(points: &[Point], width: usize, height: usize, dots: Dots) -> Self {
        let mut canvas = Self { width, dots, cells: vec![0; width * height] };
        for &(x, y) in points {
            match dots {
                Dots::Ascii => {
                    canvas.cells[dots.row(y, height) * width + dots.column(x, width)] = 1;
                }
                Dots::Braille => {
                    let (x, y) = (cell(x, width * 2), cell(1.0 - y, height * 4));
                    canvas.set(x, y);
                    if points.len() < FEW {
                        // The three beside it in the same two columns.
                        canvas.set(x ^ 1, y);
                        canvas.set(x, y ^ 1);
                        canvas.set(x ^ 1, y ^ 1);
                    }
                }
            }
        }
        canvas
    }

    /// Sets one of the two times four dots of a character.
    fn set(&mut self, x: usize, y: usize) {
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        if let Some(cell) = self.cells.get_mut(y / 4 * self.width + x / 2) {
            *cell |= BITS[y % 4][x % 2];
        }
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        self.cells.chunks(self.width).map(|row| {
            let line: String = row.iter().map(|&cell| self.character(cell)).collect();
            line.trim_end().to_owned()
        })
    }

    fn character(&self, cell: u8) -> char {
        match (self.dots, cell) {
            (_, 0) => ' ',
            (Dots::Ascii, _) => '*',
            (Dots::Braille, dots) => char::from_u32(0x2800 + u32::from(dots)).unwrap_or('*'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(numbers: &[f64]) -> PlotAxis {
        PlotAxis::of_numbers(numbers.iter().copied())
    }

    #[test]
    fn points_are_where_their_numbers_are() {
        let (x, y) = (numbers(&[0.0, 10.0]), numbers(&[1.0, 2.0]));
        let points = [(0.0, 1.0), (5.0, 1.5), (10.0, 2.0)];
        let points = points.map(|(a, b)| (x.place(a), y.place(b)));
        let drawn = draw(&points, &x, &y, (24, 7), Dots::Ascii);
        let wanted = [
            "  2 +                  *",
            "    |",
            "1.5 +         *",
            "    |",
            "  1 +*",
            "    ++--------+--------+",
            "     0        5       10",
        ];
        assert_eq!(drawn, wanted, "{drawn:#?}");
    }

    #[test]
    fn numbers_over_two_decades_are_laid_out_by_logarithms() {
        let axis = numbers(&[1e-5, 1e-3, 0.1]);
        assert!(axis.is_logarithmic());
        assert!((axis.place(1e-3) - 0.5).abs() < 1e-9);
        for linear in [&[0.0, 1e9][..], &[-1.0, 1e9], &[1.0, 100.0]] {
            assert!(!numbers(linear).is_logarithmic(), "{linear:?}");
        }
    }

    #[test]
    fn labels_are_round_numbers() {
        let labels = |from_to: &[f64], count| {
            let labels = numbers(from_to).labels(count);
            let labels: Vec<String> = labels.into_iter().map(|(_, label)| label).collect();
            labels.join(" ")
        };
        assert_eq!(labels(&[0.2929, 3.111], 4), "1 2 3");
        assert_eq!(labels(&[0.6, 0.8818], 4), "0.6 0.7 0.8");
        assert_eq!(labels(&[-1.0, 1.0], 4), "-1 -0.5 0 0.5 1");
        assert_eq!(labels(&[1e-5, 1.0], 4), "1e-5 0.001 0.1");
        assert_eq!(labels(&[3e-300, 1e300], 3), "1e-299 1e-99 1e101");
        assert_eq!(labels(&[7.0, 7.0], 3), "7");
    }

    #[test]
    fn extreme_numbers_have_places() {
        let whole = [f64::MIN, f64::MAX];
        let axis = numbers(&whole);
        for (number, wanted) in whole.into_iter().zip([0.0, 1.0]) {
            assert!((axis.place(number) - wanted).abs() < 1e-9);
        }
        let same = numbers(&[3.0, 3.0]);
        assert!((same.place(3.0) - 0.5).abs() < 1e-9);
        let points = [(0.5, 0.5)];
        for size in [(0, 0), (1, 1), (10, 3), (500, 200)] {
            for dots in [Dots::Ascii, Dots::Braille] {
                let drawn = draw(&points, &same, &axis, size, dots);
                assert!(drawn.len() >= 5, "{size:?}");
            }
        }
    }

    #[test]
    fn names_stand_below_their_points() {
        let x = PlotAxis::Names(vec!["GAN".to_owned(), "VAE".to_owned()]);
        let y = numbers(&[0.0, 1.0]);
        let points =
            [(x.place_of_name("GAN"), y.place(0.0)), (x.place_of_name("VAE"), y.place(1.0))];
        let drawn = draw(&points, &x, &y, (30, 8), Dots::Ascii);
        let column = |line: &str, text: &str| line.find(text).unwrap();
        let (high, low, names) = (&drawn[0], &drawn[5], &drawn[7]);
        assert_eq!(column(high, "*"), column(names, "VAE") + 1, "{drawn:#?}");
        assert_eq!(column(low, "*"), column(names, "GAN") + 1, "{drawn:#?}");
    }

    #[test]
    fn braille_has_eight_dots_to_a_character() {
        let (x, y) = (numbers(&[0.0, 1.0]), numbers(&[0.0, 1.0]));
        let drawn = draw(&[(0.0, 0.0), (1.0, 1.0)], &x, &y, (20, 6), Dots::Braille);
        let dots = drawn.iter().flat_map(|line| line.chars());
        let dots: Vec<char> = dots.filter(|c| ('\u{2800}'..='\u{28ff}').contains(c)).collect();
        assert_eq!(dots, ['⠛', '⣤'], "{drawn:#?}");
    }
}
