//! Names with ranges in them, `t_order_{0..15}`, as people write them for whoever routes their statements to shards.
//!
//! `${0..15}` and `$->{0..15}` are the same, as they stand in rules of ShardingSphere.

/// The most names that one text may stand for.
const MOST: usize = 1_024;

/// A part of such a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// What it stands for, one after the other.
    Range(Vec<String>),
}

/// A text with ranges, each of which stands for several texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Piece>);

/// One of the texts that a text with ranges stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meant {
    /// The text.
    pub(super) text: String,
    /// Where in it the ranges stand: from the beginning of the first to the end of the last.
    pub(super) varies: Option<(usize, usize)>,
}

impl Meant {
    /// What stands for the ranges, with what stands between them.
    pub(super) fn part(&self) -> Option<&str> {
        self.varies.map(|(from, to)| &self.text[from..to])
    }
}

impl Ranges {
    /// Reads a text; braces without a range in them stay as they are.
    ///
    /// # Errors
    /// Says what is wrong with a range, quoting no more than that.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = vec![Piece::Text(String::new())];
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match range(rest) {
                Some((written, after)) => {
                    pieces.push(Piece::Range(values(written)?));
                    pieces.push(Piece::Text(String::new()));
                    rest = after;
                }
                None => {
                    if let Some(Piece::Text(text)) = pieces.last_mut() {
                        text.push(first);
                    }
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        Ok(Self(pieces))
    }

    /// Whether there is none.
    pub(super) fn are_none(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Each text that is meant, with all ranges counted by themselves: the last one counts fastest.
    ///
    /// # Errors
    /// Says that there are too many.
    pub(super) fn multiplied(&self) -> Result<Vec<Meant>, String> {
        let mut all = vec![Meant { text: String::new(), varies: None }];
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => all.iter_mut().for_each(|meant| meant.text.push_str(text)),
                Piece::Range(values) => {
                    if all.len() * values.len() > MOST {
                        return Err(format!("has ranges that stand for more than {MOST} names"));
                    }
                    all = all.iter().flat_map(|meant| values.iter().map(|value| meant.with(value))).collect();
                }
            }
        }
        Ok(all)
    }

    /// Each text that is meant, with all ranges counted together; each with what it has in their place.
    ///
    /// # Errors
    /// Says that the ranges are not the same.
    pub(super) fn together(&self) -> Result<Vec<(Option<String>, String)>, String> {
        let ranges: Vec<&Vec<String>> =
            self.0.iter().filter_map(|piece| if let Piece::Range(values) = piece { Some(values) } else { None }).collect();
        let Some(first) = ranges.first() else {
            return Ok(self.multiplied()?.into_iter().map(|meant| (None, meant.text)).collect());
        };
        if ranges.iter().any(|range| range != first) {
            return Err("its ranges differ, and all ranges of a URL count together; write the same range each time".into());
        }
        let at = |index: usize| {
            let piece = |piece: &Piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Range(values) => values[index].clone(),
            };
            (Some(first[index].clone()), self.0.iter().map(piece).collect())
        };
        Ok((0..first.len()).map(at).collect())
    }
}

impl Meant {
    fn with(&self, value: &str) -> Self {
        let from = self.varies.map_or(self.text.len(), |(from, _)| from);
        let text = format!("{}{value}", self.text);
        Self { varies: Some((from, text.len())), text }
    }
}

/// The range that a text begins with, without its braces, and what follows it.
fn range(text: &str) -> Option<(&str, &str)> {
    let inner = ["{", "${", "$->{"].iter().find_map(|opening| text.strip_prefix(opening))?;
    let (written, after) = inner.split_once('}')?;
    let (from, to) = written.split_once("..")?;
    let is_number = |text: &str| !text.trim().is_empty() && text.trim().bytes().all(|byte| byte.is_ascii_digit());
    (is_number(from) && is_number(to)).then_some((written, after))
}

/// What a range stands for: `0..3` for 0, 1, 2 and 3, `00..15` for 00 to 15.
fn values(written: &str) -> Result<Vec<String>, String> {
    let (from, to) = written.split_once("..").map_or((written, written), |(from, to)| (from.trim(), to.trim()));
    let width = if from.len() > 1 && from.starts_with('0') { from.len() } else { 0 };
    let wrong = |what: &str| format!("has the range {{{written}}}, {what}");
    let (Ok(first), Ok(last)) = (from.parse::<u32>(), to.parse::<u32>()) else { return Err(wrong("whose numbers are too large")) };
    if first > last {
        return Err(wrong(&format!("which counts down; write {{{to}..{from}}}")));
    }
    if (last - first) as usize >= MOST {
        return Err(wrong(&format!("which stands for more than {MOST} names")));
    }
    Ok((first..=last).map(|number| format!("{number:0width$}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let ranges = Ranges::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        ranges.multiplied().unwrap_or_else(|error| panic!("{text}: {error}")).into_iter().map(|meant| meant.text).collect()
    }

    #[test]
    fn ranges_are_read_however_they_are_pasted() {
        for text in ["t_{0..2}", "t_${0..2}", "t_$->{0..2}", "t_{ 0 .. 2 }"] {
            assert_eq!(names(text), ["t_0", "t_1", "t_2"], "{text}");
        }
        assert_eq!(names("t_{08..10}"), ["t_08", "t_09", "t_10"]);
        assert_eq!(names("a{0..1}.b{7..8}"), ["a0.b7", "a0.b8", "a1.b7", "a1.b8"]);
        assert_eq!(names("plain"), ["plain"]);
        assert_eq!(names("t_{a,b}_${x}"), ["t_{a,b}_${x}"], "no range");
    }

    #[test]
    fn what_varies_is_known() {
        let parts = |text: &str| -> Vec<Option<String>> {
            let all = Ranges::parse(text).and_then(|ranges| ranges.multiplied()).unwrap_or_else(|error| panic!("{text}: {error}"));
            all.iter().map(|meant| meant.part().map(str::to_owned)).collect()
        };
        assert_eq!(parts("t_{0..1}_order"), [Some("0".to_owned()), Some("1".to_owned())]);
        assert_eq!(parts("t_{3..3}_{07..08}"), [Some("3_07".to_owned()), Some("3_08".to_owned())]);
        assert_eq!(parts("t_order"), [None]);
    }

    #[test]
    fn one_range_written_twice_counts_together() {
        let all = Ranges::parse("db-{0..1}/shop_{0..1}").and_then(|ranges| ranges.together());
        let meant = |number: &str| (Some(number.to_owned()), format!("db-{number}/shop_{number}"));
        assert_eq!(all, Ok(vec![meant("0"), meant("1")]));
        let differ = Ranges::parse("db-{0..1}/shop_{0..2}").and_then(|ranges| ranges.together());
        assert!(differ.is_err_and(|error| error.contains("differ")));
    }

    #[test]
    fn a_range_that_stands_for_nothing_or_for_too_much_is_refused() {
        for (text, what) in [("t_{3..0}", "write {0..3}"), ("t_{0..4000}", "more than 1024"), ("t_{0..99999999999}", "too large")] {
            let refused = Ranges::parse(text);
            assert!(refused.as_ref().is_err_and(|error| error.contains(what)), "{text}: {refused:?}");
        }
        let many = Ranges::parse("t_{0..99}_{0..99}").and_then(|ranges| ranges.multiplied());
        assert!(many.is_err_and(|error| error.contains("more than 1024")));
    }
}
