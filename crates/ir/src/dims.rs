//! Arithmetic on extents, and on the integers that shapes are made of while a program is read.
//!
//! A result that is not a number yet gets a name made of its parts, so that equal results stay
//! equal. Negative numbers wrap, as in [`Types::dims`](crate::Types::dims).

use crate::{Dim, Symbol};

/// Elements up to which shape arithmetic is followed: a shape doubled forty times is none.
pub(crate) const KNOWN_MAX: usize = 1024;

/// Integer arithmetic that shapes are made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calculation {
    Add,
    Sub,
    Mul,
    /// Rounded towards minus infinity; division by zero is 0.
    FloorDiv,
    /// The rest of `FloorDiv`, of the divisor's sign.
    Mod,
    Max,
    Min,
}

use Calculation::*;

impl Calculation {
    /// The definition, on int32: it wraps.
    pub fn of(self, x: i32, y: i32) -> i32 {
        match self {
            Add => x.wrapping_add(y),
            Sub => x.wrapping_sub(y),
            Mul => x.wrapping_mul(y),
            FloorDiv => floor_div(x, y),
            Mod => x.wrapping_sub(floor_div(x, y).wrapping_mul(y)) * i32::from(y != 0),
            Max => x.max(y),
            Min => x.min(y),
        }
    }

    /// On extents; `None` when a number is no int32.
    pub(crate) fn on(self, x: &Dim, y: &Dim) -> Option<Dim> {
        let (zero, one) = (Dim::Fixed(0), Dim::Fixed(1));
        let name = match (self, x, y) {
            (_, Dim::Fixed(a), Dim::Fixed(b)) => {
                let int = |n: u64| i32::try_from(n as i64).ok();
                return Some(number(self.of(int(*a)?, int(*b)?).into()));
            }
            (Add | Sub, x, y) if *y == zero => return Some(x.clone()),
            (Add, x, y) if *x == zero => return Some(y.clone()),
            (Mul | FloorDiv, x, y) if *y == one => return Some(x.clone()),
            (Mul, x, y) if *x == one => return Some(y.clone()),
            (Mul, x, y) if *x == zero || *y == zero => return Some(zero),
            (Mod, _, y) if *y == one => return Some(zero),
            (Sub, x, y) if x == y => return Some(zero),
            (Max | Min, x, y) if x == y => return Some(x.clone()),
            (Add, ..) => "plus",
            (Sub, ..) => "minus",
            (Mul, ..) => "mul",
            (FloorDiv, ..) => "div",
            (Mod, ..) => "mod",
            (Max, ..) => "max",
            (Min, ..) => "min",
        };
        Some(named(&format!("{}.{name}.{}", part(x), part(y))))
    }
}

fn floor_div(x: i32, y: i32) -> i32 {
    match y {
        0 => 0,
        -1 => x.wrapping_neg(),
        _ => x.div_euclid(y) - i32::from(y < 0 && x.rem_euclid(y) != 0),
    }
}

/// A number of shape arithmetic, which may be negative.
pub(crate) fn number(n: i64) -> Dim {
    Dim::Fixed(n as u64)
}

/// A dimension that is called by how it is calculated. Names begin with a letter.
pub(crate) fn named(calculation: &str) -> Dim {
    let is_number = calculation.starts_with(|c: char| c.is_ascii_digit());
    Dim::Symbol(Symbol::new(&format!("{}{calculation}", if is_number { "n" } else { "" })))
}

/// How a dimension appears in the name of one derived from it.
pub(crate) fn part(d: &Dim) -> String {
    match d.fixed().map(|n| n as i64) {
        Some(n) if n < 0 => format!("neg{}", n.unsigned_abs()),
        _ => d.to_string(),
    }
}

/// The product of extents, saturating; derived names where there are symbols.
pub(crate) fn product(dims: &[Dim]) -> Dim {
    let fixed = dims.iter().filter_map(Dim::fixed).fold(1u64, u64::saturating_mul);
    let symbols: Vec<&Dim> = dims.iter().filter(|d| d.fixed().is_none()).collect();
    match symbols.as_slice() {
        [] => Dim::Fixed(fixed),
        [one] if fixed == 1 => (*one).clone(),
        many => {
            let mut parts: Vec<String> = many.iter().map(|d| d.to_string()).collect();
            parts.extend((fixed != 1).then(|| fixed.to_string()));
            named(&parts.join(".mul."))
        }
    }
}

/// `d` plus and minus lengths, for slices and padding; `None` below zero.
pub(crate) fn shifted(d: &Dim, more: u64, less: u64) -> Option<Dim> {
    match d {
        Dim::Fixed(n) => n.checked_add(more)?.checked_sub(less).map(Dim::Fixed),
        Dim::Symbol(_) if more == less => Some(d.clone()),
        Dim::Symbol(_) if more > less => Add.on(d, &Dim::Fixed(more - less)),
        Dim::Symbol(_) => Sub.on(d, &Dim::Fixed(less - more)),
    }
}

/// `d * times / parts`; `None` when a number does not divide.
pub(crate) fn scaled(d: &Dim, times: u64, parts: u64) -> Option<Dim> {
    match d {
        Dim::Fixed(n) => {
            let n = n.checked_mul(times)?;
            (parts > 0 && n.is_multiple_of(parts)).then(|| Dim::Fixed(n / parts))
        }
        Dim::Symbol(_) => FloorDiv.on(&Mul.on(d, &Dim::Fixed(times))?, &Dim::Fixed(parts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_down_and_wraps() {
        for (x, y, div, rest) in [
            (7, 2, 3, 1),
            (-7, 2, -4, 1),
            (7, -2, -4, -1),
            (-7, -2, 3, -1),
            (6, -3, -2, 0),
            (5, 0, 0, 0),
            (i32::MIN, -1, i32::MIN, 0),
            (i32::MIN, i32::MAX, -2, i32::MAX - 1),
        ] {
            assert_eq!((FloorDiv.of(x, y), Mod.of(x, y)), (div, rest), "{x} and {y}");
        }
    }

    #[test]
    fn symbols_keep_their_names_where_they_can() {
        let s = Dim::Symbol(Symbol::new("S"));
        let n = |n: i64| number(n);
        assert_eq!(Add.on(&s, &n(0)), Some(s.clone()));
        assert_eq!(Mul.on(&n(1), &s), Some(s.clone()));
        assert_eq!(Sub.on(&s, &s), Some(n(0)));
        assert_eq!(Sub.on(&s, &n(-1)).unwrap().to_string(), "S.minus.neg1");
        assert_eq!(Sub.on(&n(4), &s).unwrap().to_string(), "n4.minus.S", "no name is a number");
        assert_eq!(Add.on(&n(i64::MAX), &n(1)), None);
        assert_eq!(product(&[n(2), s.clone(), n(3)]).to_string(), "S.mul.6");
        assert_eq!(shifted(&n(2), 0, 3), None);
        assert_eq!(scaled(&n(7), 1, 2), None);
        assert_eq!(scaled(&s, 4, 2).unwrap().to_string(), "S.mul.4.div.2");
    }
}
